"""Pydantic's validation errors in words: dotted key, what is wrong, the closest valid name."""

import dataclasses
from collections.abc import Iterator

from pydantic import BaseModel, ValidationError

from modalities_pipeline.config.checking.error_locations import ABOUT_KEYS, Complaint, locate, models_in, names_of_field
from modalities_pipeline.config.checking.suggestions import closest_name, suggestion
from modalities_pipeline.config.checking.wording import describe_kinds, describe_value, expectation, expects_number
from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.unbuilt import Unbuilt

__all__ = [
    "faults_in_words",
    "models_in",
    "names_of_field",
    "suggestion",
]


def faults_in_words(error: ValidationError, model: type[BaseModel] | None = None) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong and where in the validated data; of values that nobody can know before building, nothing.

    A value that fits no member of a union is one fault: that of the member it comes closest to.
    """
    complaints = [locate(details, model) for details in error.errors(include_url=False)]
    unknown = {item.key_path for item in complaints if _is_unknown(item)}
    misspelt = {(*item.key_path[:-1], _intended_key(item)) for item in complaints if _is_extra(item)}
    yield from _describe_all(
        [
            item
            for item in complaints
            if item.key_path not in unknown and not (item.error["type"] == "missing" and item.key_path in misspelt)
        ]
    )


def _is_extra(complaint: Complaint) -> bool:
    return complaint.error["type"] == "extra_forbidden"


def _intended_key(complaint: Complaint) -> str | None:
    """The key that an unknown key is probably meant to be; that one is then not missing as well."""
    fields = complaint.owner.model_fields if complaint.owner else {}
    names = {
        other: names_of_field(name, field) for name, field in fields.items() for other in names_of_field(name, field)
    }
    closest = closest_name(str(complaint.key_path[-1]), names)
    return names[closest][0] if closest else None


def _is_unknown(complaint: Complaint) -> bool:
    """Whether only an unbuilt component's unknown value is in the way."""
    value, kind = complaint.error["input"], complaint.error["type"]
    if kind in (*ABOUT_KEYS, "wrong_component"):
        return False
    if kind in ("value_error", "assertion_error"):
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        return any(isinstance(item, Unbuilt) and item.is_unknown for item in values)
    if not isinstance(value, Unbuilt):
        return False
    if kind == "is_instance_of":
        return True  # a class of somebody else's, whose name says nothing about its bases
    return value.interface is None or (value.is_unknown and expects_number(complaint.error))


def _describe_all(complaints: list[Complaint]) -> Iterator[tuple[KeyPath, str]]:
    by_union: dict[KeyPath, list[Complaint]] = {}
    for item in complaints:
        path = item.key_path[: item.tags[0][0]] if item.tags else item.key_path
        by_union.setdefault(path, []).append(item)
    for path, group in by_union.items():
        tagged = [item for item in group if item.tags]
        yield from _describe_group([item for item in group if not item.tags])
        if tagged:
            yield from _describe_union(path, tagged)


def _describe_union(path: KeyPath, complaints: list[Complaint]) -> Iterator[tuple[KeyPath, str]]:
    members: dict[str | int, list[Complaint]] = {}
    for item in complaints:
        members.setdefault(item.tags[0][1], []).append(dataclasses.replace(item, tags=item.tags[1:]))
    fitting = [group for group in members.values() if not any(_is_of_wrong_kind(item, path) for item in group)]
    if fitting:
        yield from _describe_all(min(fitting, key=len))
    else:
        everything = [item for group in members.values() for item in group]
        yield from _describe_group([item for item in everything if _is_of_wrong_kind(item, path)])


def _is_of_wrong_kind(complaint: Complaint, path: KeyPath) -> bool:
    return complaint.key_path == path and expectation(complaint.error) is not None


def _describe_group(complaints: list[Complaint]) -> Iterator[tuple[KeyPath, str]]:
    kinds: dict[KeyPath, list[str]] = {}
    for item in complaints:
        kind = expectation(item.error)
        if kind is None:
            yield item.key_path, _describe_one(item)
        else:
            kinds.setdefault(item.key_path, []).append(kind)
    for item in complaints:
        if item.key_path in kinds and expectation(item.error) is not None:
            yield item.key_path, describe_kinds(kinds.pop(item.key_path), item.error["input"])


def _describe_one(complaint: Complaint) -> str:
    if complaint.error["type"] == "missing":
        return f"is missing{_similar_key(complaint)}"
    if complaint.error["type"] == "union_tag_not_found":
        name = complaint.error["ctx"]["discriminator"].strip("'")
        return "is missing" if complaint.key_path[-1] == name else f"unknown key; did you mean '{name}'?"
    if complaint.error["type"] != "extra_forbidden":
        return describe_value(complaint.error)
    key, fields = str(complaint.key_path[-1]), complaint.owner.model_fields if complaint.owner else {}
    all_names = [names_of_field(name, field) for name, field in fields.items()]
    for names in all_names:
        if key in names:
            others = " and ".join(f"'{name}'" for name in names if name != key)
            return f"is another name of {others}, which is there, too; leave one out"
    closest = closest_name(key, [name for names in all_names for name in names])
    return f"unknown key{suggestion(closest or key, [closest] if closest else [names[0] for names in all_names])}"


def _similar_key(complaint: Complaint) -> str:
    """ " (there is 'x')" if a key that is none of the fields is like the missing one."""
    given, fields = complaint.error["input"], complaint.owner.model_fields if complaint.owner else {}
    known = {other for name, field in fields.items() for other in names_of_field(name, field)}
    others = [str(key) for key in given if key not in known] if isinstance(given, dict) else []
    closest = closest_name(str(complaint.key_path[-1]), others)
    return f" (there is '{closest}')" if closest else ""
