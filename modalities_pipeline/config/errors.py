"""Pydantic's validation errors in words: file, line, dotted key, what is wrong, the closest valid name."""

import difflib
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from modalities_pipeline.config.loader import KeyPath, Position


def describe_validation_error(
    error: ValidationError,
    path: Path | None,
    position: Callable[[KeyPath], Position | None],
    prefix: KeyPath = (),
    model: type[BaseModel] | None = None,
) -> list[str]:
    """One line per fault: "file:line: a.b.c: what; did you mean 'x'?".

    `prefix` is where in the file the validated data stand; `model`, the validated class, allows to name valid keys.
    """
    return [
        describe_fault(describe(fault, model), path, position, (*prefix, *fault["loc"]))
        for fault in error.errors(include_url=False)
    ]


def describe_fault(
    message: str, path: Path | None, position: Callable[[KeyPath], Position | None], key_path: KeyPath
) -> str:
    """ "file:line: a.b.c: message"; the line is that of the key or of the nearest key above it that the file has."""
    where = ""
    if path is not None:
        known = filter(None, (position(key_path[:end]) for end in range(len(key_path), 0, -1)))
        nearest = next(known, None)
        where = f"{path}:{nearest[0]}: " if nearest else f"{path}: "
    dotted = ".".join(str(part) for part in key_path)
    return f"{where}{dotted}: {message}" if dotted else f"{where}{message}"


def closest_name(name: str, valid_names: Iterable[str]) -> str | None:
    """The valid name that is most like `name`, None if none is."""
    return next(iter(difflib.get_close_matches(name, list(valid_names), n=1, cutoff=0.6)), None)


def suggestion(name: str, valid_names: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or, if nothing is close, "; known: a, b, c"."""
    names = sorted(valid_names)
    closest = closest_name(name, names)
    if closest is not None:
        return f"; did you mean '{closest}'?"
    return f"; known: {', '.join(names)}" if names else ""


def names_of_field(name: str, field: FieldInfo) -> list[str]:
    """Every key under which a field may be given, the first being the one to recommend."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [choice for choice in alias.choices if isinstance(choice, str)]
    return [alias if isinstance(alias, str) else name]


def describe(fault: ErrorDetails, model: type[BaseModel] | None) -> str:
    """What is wrong, of one of `ValidationError.errors()`."""
    loc: KeyPath = fault["loc"]
    if fault["type"] == "extra_forbidden":
        owner = _model_at(model, loc[:-1]) if model else None
        names = (
            [name for key, field in owner.model_fields.items() for name in names_of_field(key, field)] if owner else []
        )
        return f"unknown key{suggestion(str(loc[-1]), names)}"
    if fault["type"] == "missing":
        return "is missing"
    message = fault["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:] if message[1:2].islower() else message
    return message if fault["type"] == "value_error" else f"{message} (given: {_short(fault['input'])})"


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | list | dict | None) else type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."


def _model_at(model: type[BaseModel], loc: KeyPath) -> type[BaseModel] | None:
    """The model that validated the data at `loc`, found by walking through field annotations."""
    candidates: list[Any] = [model]
    for part in loc:
        following: list[Any] = []
        for candidate in candidates:
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                if part == candidate.__name__:  # pydantic names the member of a union in the location
                    following.append(candidate)
                for name, field in candidate.model_fields.items():
                    if part in (name, *names_of_field(name, field)):
                        following.extend(_models_in(field.annotation))
        candidates = following or candidates
    return next((item for item in candidates if isinstance(item, type) and issubclass(item, BaseModel)), None)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)
