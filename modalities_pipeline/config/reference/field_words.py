"""The fields of a config class in plain words: what a value may be, its default, other names, what it means."""

import dataclasses
import enum
import re
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.types import PathType

from modalities_pipeline.config.checking.error_locations import models_in, names_of_field
from modalities_pipeline.config.named_enums import ByName
from modalities_pipeline.config.pydantic_if_types import PydanticThirdPartyTypeIF

KeysOfInterface = Callable[[str], list[str]]  # "module:Class" -> the component keys whose components may be one

_WORDS: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    Path: "path",
    type(None): "null",
    Any: "anything",
    dict: "mapping",
    list: "list",
}
_PATH_WORDS = {"file": "path of a file that exists", "dir": "path of a folder that exists", "new": "path of a new file"}
_BOILERPLATE = re.compile(r"^(Nothing to set|No fields|(Fields|Config) of (`[^`]*`|[^.;:`])*)[.;:]\s*")
_WORD = re.compile(r"[A-Za-z-]+[,;:.]?( |$)")  # no name such as torch.nn.LayerNorm
_COMPARISONS = (
    (annotated_types.Gt, "gt", ">"),
    (annotated_types.Ge, "ge", ">="),
    (annotated_types.Lt, "lt", "<"),
    (annotated_types.Le, "le", "<="),
)


@dataclasses.dataclass(frozen=True)
class NestedWords:
    """A config class that stands in a field of another one: its name, what its docstring tells, its fields."""

    name: str
    description: str
    fields: tuple["FieldWords", ...]


@dataclasses.dataclass(frozen=True)
class FieldWords:
    """One field of a config.

    Attributes:
        name: the key to write.
        other_names: keys that mean the same, of other versions of Modalities.
        type_words: what a value may be.
        default: as YAML; None if the field is required.
        description: what it means; may be empty.
        nested: the config classes that may stand here.
    """

    name: str
    other_names: tuple[str, ...]
    type_words: str
    default: str | None
    description: str
    nested: tuple[NestedWords, ...]


def fields_in_words(config_type: type[BaseModel], keys_of: KeysOfInterface) -> tuple[FieldWords, ...]:
    """All fields of a config class, the required ones first."""
    fields = config_type.model_fields.items()
    words = [_field_in_words(name, field, keys_of) for name, field in fields]
    return tuple(sorted(words, key=lambda field: field.default is not None))


def paragraphs_about(config_type: type[BaseModel], known: str = "") -> list[str]:
    """The paragraphs of a config class' docstring, without its first words, which are the same in all, and `known`."""
    text = _BOILERPLATE.sub("", (config_type.__doc__ or "").strip())
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    return [as_sentence(paragraph) for paragraph in paragraphs if paragraph.rstrip(".").lower() != known.lower()]


def as_sentence(text: str) -> str:
    """The text with a capital letter, unless it begins with a name of code."""
    return text[:1].upper() + text[1:] if _WORD.match(text) else text


def _field_in_words(name: str, field: FieldInfo, keys_of: KeysOfInterface) -> FieldWords:
    first, *others = names_of_field(name, field)
    words = type_in_words(field.annotation, field.metadata, keys_of)
    is_single = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    return FieldWords(
        name=first,
        other_names=tuple(others),
        type_words=f"{words} only" if is_single else words,
        default=None if field.is_required() else value_as_yaml(field.get_default(call_default_factory=True)),
        description=field.description or "",
        nested=tuple(
            NestedWords(model.__name__, " ".join(paragraphs_about(model)), fields_in_words(model, keys_of))
            for model in dict.fromkeys(models_in(field.annotation))
        ),
    )


def type_in_words(annotation: Any, metadata: Iterable[Any], keys_of: KeysOfInterface) -> str:
    """What a value of a type may be, with its limits: "integer >= 1 or null"."""
    annotation, marks = unwrapped(annotation, metadata)
    for mark in marks:
        if isinstance(mark, PydanticThirdPartyTypeIF):
            return _component_in_words(mark, keys_of)
        if isinstance(mark, PathType):
            return _PATH_WORDS[mark.path_type]
    if is_enum(annotation):
        return f"one of {', '.join(enum_spellings(annotation, marks))}"
    words = _plain_in_words(annotation, keys_of)
    limits = " and ".join(limits_in_words(marks))
    return f"{words} {limits}" if limits else words


def unwrapped(annotation: Any, metadata: Iterable[Any] = ()) -> tuple[Any, list[Any]]:
    """A type without `Annotated`, and all that was annotated, that of `Field(...)` included."""
    marks = list(metadata)
    while get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        marks = [*inner, *marks]
    flat = [part for mark in marks for part in ([mark, *mark.metadata] if isinstance(mark, FieldInfo) else [mark])]
    return annotation, flat


def is_enum(annotation: Any) -> bool:
    """Whether a type is a class of named values."""
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum)


def enum_spellings(annotation: type[enum.Enum], marks: Iterable[Any]) -> list[str]:
    """How the members are written in YAML."""
    if any(isinstance(mark, ByName) for mark in marks):
        return list(annotation.__members__)
    return [str(member.value) for member in annotation]


def is_union(annotation: Any) -> bool:
    """Whether a type is `A | B`."""
    return get_origin(annotation) in (Union, types.UnionType)


def limits_in_words(marks: Iterable[Any]) -> Iterator[str]:
    """Limits of a number or a length, as ">= 1"."""
    for mark in marks:
        for kind, attribute, sign in _COMPARISONS:
            if isinstance(mark, kind):
                yield f"{sign} {getattr(mark, attribute)}"
        if isinstance(mark, annotated_types.MinLen) and mark.min_length:
            yield "(not empty)" if mark.min_length == 1 else f"(at least {mark.min_length})"


def value_as_yaml(value: Any) -> str:
    """A default as one would write it in a YAML file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(value_as_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {value_as_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, BaseModel):
        return value_as_yaml(value.model_dump(mode="json", exclude_unset=True))
    return str(value) if value != "" else "''"


def _component_in_words(mark: PydanticThirdPartyTypeIF, keys_of: KeysOfInterface) -> str:
    keys = " or ".join(keys_of(mark.interface))
    return f"component {keys} ({mark.name})" if keys else f"component ({mark.name})"


def _plain_in_words(annotation: Any, keys_of: KeysOfInterface) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if is_union(annotation):
        return " or ".join(dict.fromkeys(type_in_words(argument, (), keys_of) for argument in arguments))
    if origin is Literal:
        values = [value_as_yaml(value) for value in arguments]
        return f"one of {', '.join(values)}" if len(values) > 1 else values[0]
    inner = [type_in_words(argument, (), keys_of) for argument in arguments if argument is not Ellipsis]
    if origin is tuple and Ellipsis not in arguments:
        return f"list of {len(inner)}: {', '.join(inner)}"
    if origin in (list, tuple, set, frozenset) or _is_iterable(origin):
        return f"list, each {inner[0]}" if inner[0].startswith("one of") else f"list of {inner[0]}"
    if origin is dict:
        return f"mapping of {inner[0]} to {inner[1]}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"mapping {annotation.__name__}"
    return _WORDS.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _is_iterable(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Iterable) and not issubclass(origin, dict)
