"""Where in the validated data pydantic's complaints are, and about which class."""

import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from modalities_pipeline.config.checking.suggestions import closest_name
from modalities_pipeline.config.origins import KeyPath

ABOUT_KEYS = ("missing", "extra_forbidden", "unknown_key")  # the last one is that of `component.validate_as`

# what pydantic calls a member of a union that is no model: "int", "constrained-str", "list[int]", "function-plain[f()]"
_TAG = re.compile(r"(constrained-)?(int|float|str|bool|none|path|decimal|bytes|any)|.*\[.*\]")


@dataclasses.dataclass(frozen=True)
class Complaint:
    """One error of pydantic, with the key path in the data apart from the members of unions that were tried."""

    error: ErrorDetails
    key_path: KeyPath
    tags: tuple[tuple[int, str | int], ...]  # (length of the key path of the union's value, the member)
    owner: type[BaseModel] | None  # the class that has, or should have, the last key


def names_of_field(name: str, field: FieldInfo) -> list[str]:
    """Every key under which a field may be given, the first being the one to recommend."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [choice for choice in alias.choices if isinstance(choice, str)]
    return [alias if isinstance(alias, str) else name]


def locate(error: ErrorDetails, model: type[BaseModel] | None) -> Complaint:
    """The complaint about data that `model` validated.

    Walks through the fields' annotations to tell keys from the names of union members, which pydantic mixes.
    """
    key_path: list[str | int] = []
    tags: list[tuple[int, str | int]] = []
    candidates = owners = [model] if model else []
    takes_any_key = False
    for index, part in enumerate(error["loc"]):
        following = list(_fields_named(candidates, part))
        is_named_key = index == len(error["loc"]) - 1 and error["type"] in ABOUT_KEYS
        if following:
            key_path.append(part)
            owners, takes_any_key = candidates, any(_has_mapping(field.annotation) for field in following)
            candidates = [item for field in following for item in models_in(field.annotation)]
        elif is_named_key or isinstance(part, int) or not _is_tag(part, candidates, takes_any_key):
            key_path.append(part)
            owners = candidates
        elif part != "[key]":
            tags.append((len(key_path), part))
            candidates = [candidate for candidate in candidates if _is_member(candidate, part)] or candidates
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        key_path.append(_discriminator(error))
    return Complaint(error, tuple(key_path), tuple(tags), next(iter(owners), None))


def _discriminator(error: ErrorDetails) -> str:
    """The key that tells a union's members apart, or what stands there for it."""
    name: str = error["ctx"]["discriminator"].strip("'")
    if error["type"] == "union_tag_invalid" or not isinstance(error["input"], dict):
        return name
    return closest_name(name, map(str, error["input"])) or name


def _fields_named(models: Iterable[type[BaseModel]], name: str | int) -> Iterator[FieldInfo]:
    for model in models:
        for field_name, field in model.model_fields.items():
            if name == field_name or name in names_of_field(field_name, field):
                yield field


def _is_tag(part: str, candidates: list[type[BaseModel]], takes_any_key: bool) -> bool:
    """Whether a part of a location is the name of a union's member, seeing that it is no field."""
    if part == "[key]" or _TAG.fullmatch(part) or any(_is_member(candidate, part) for candidate in candidates):
        return True
    has_more_keys = takes_any_key or any(model.model_config.get("extra") == "allow" for model in candidates)
    return bool(candidates) and not has_more_keys


def _is_member(model: type[BaseModel], tag: str) -> bool:
    """Whether a union calls this member so: by its class, or by the value of the key that tells members apart."""
    values = (value for field in model.model_fields.values() for value in typing.get_args(field.annotation))
    return tag == model.__name__ or tag in values


def _has_mapping(annotation: Any) -> bool:
    return typing.get_origin(annotation) is dict or any(map(_has_mapping, typing.get_args(annotation)))


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models that an annotation mentions."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
        return
    for argument in typing.get_args(annotation):
        yield from models_in(argument)
