"""Pydantic's complaints about one value, in plain words."""

import re
from pathlib import Path
from typing import Any, get_args

from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from modalities_pipeline.config.checking.suggestions import closest_name
from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.unbuilt import Unbuilt

_MAX_LENGTH = 80
NO_COMPONENT = "has to be a component ("  # begins the words on data that stand where a component belongs

_KINDS = {
    "int": "an integer",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "a text",
    "path": "a path",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "iterable": "a list",
    "dict": "a mapping (key: value)",
    "mapping": "a mapping (key: value)",
    "model": "a mapping (key: value)",
    "model_attributes": "a mapping (key: value)",
    "dataclass": "a mapping (key: value)",
}
_TYPES_OF_PYDANTIC = frozenset(get_args(ErrorType))  # any other is a validator's own, with words of its own
_NUMBER_KINDS = {"an integer", "a number"}

_WORDS = {
    "greater_than": "has to be greater than {gt}",
    "greater_than_equal": "has to be at least {ge}",
    "less_than": "has to be less than {lt}",
    "less_than_equal": "has to be at most {le}",
    "multiple_of": "has to be a multiple of {multiple_of}",
    "finite_number": "has to be a finite number",
    "too_short": "needs at least {min_length} elements, has {actual_length}",
    "too_long": "may have at most {max_length} elements, has {actual_length}",
    "string_too_short": "needs at least {min_length} characters",
    "string_too_long": "may have at most {max_length} characters",
    "string_pattern_mismatch": "has to match the pattern {pattern}",
    "path_not_file": "there is no such file",
    "path_not_directory": "there is no such folder",
    "path_exists": "exists already",
    "none_required": "has to be null",
    "is_instance_of": "has to be a {class}",
}


def expectation(fault: ErrorDetails) -> str | None:
    """What kind of value was expected ("an integer"), None if the kind is right and the value is not."""
    if fault["type"] in ("enum", "literal_error"):
        return f"one of {_expected(fault)}"
    if fault["type"] == "no_component":
        return f"a component ({fault['ctx']['wanted']}), or a reference to one"
    name, _, ending = fault["type"].rpartition("_")
    if fault["type"] == "int_from_float":
        return _KINDS["int"]
    return _KINDS.get(name) if ending in ("type", "parsing", "size") else None


def expects_number(fault: ErrorDetails) -> bool:
    """Whether a number was expected."""
    return expectation(fault) in _NUMBER_KINDS


def describe_kinds(kinds: list[str], value: Any) -> str:
    """ "has to be an integer or a text (given: [1])"."""
    *others, last = dict.fromkeys(kinds)
    wanted = f"{', '.join(others)} or {last}" if others else last
    if isinstance(value, Unbuilt):
        return f"has to be {wanted}, but {value.name} is {what_it_is(value.interface)}"
    if isinstance(value, list | dict) and value:
        return f"has to be {wanted}, not a {'list' if isinstance(value, list) else 'mapping'}"
    return f"has to be {wanted} (given: {short(value)}){_intended(wanted, value)}"


def what_it_is(interface: str | None) -> str:
    """ "an Optimizer" of "torch.optim:Optimizer"."""
    name = (interface or "thing of unknown kind").rpartition(":")[2]
    return "a number" if interface == NUMBER else with_article(name)


def with_article(name: str) -> str:
    """ "an Optimizer", "a Module"."""
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def _intended(wanted: str, value: Any) -> str:
    names = wanted.removeprefix("one of ").split(", ") if wanted.startswith("one of ") else []
    closest = closest_name(value, names) if isinstance(value, str) else None
    return f"; did you mean '{closest}'?" if closest else ""


def describe_value(fault: ErrorDetails) -> str:
    """What is wrong with a value of the right kind."""
    context: dict[str, Any] = fault.get("ctx", {})
    if fault["type"] in ("value_error", "assertion_error"):
        return str(context.get("error") or fault["msg"])
    if fault["type"] in _WORDS:
        return f"{_WORDS[fault['type']].format(**context)} (given: {short(fault['input'])})"
    if fault["type"] == "union_tag_invalid":
        return describe_kinds([f"one of {context['expected_tags']}".replace("'", "")], context["tag"])
    if fault["type"] not in _TYPES_OF_PYDANTIC:
        return fault["msg"]
    message = fault["msg"].removeprefix("Input ")
    message = message[:1].lower() + message[1:] if message[1:2].islower() else message
    return f"{message.replace('should be', 'has to be', 1)} (given: {short(fault['input'])})"


def _expected(fault: ErrorDetails) -> str:
    """The valid values of "'a', 'b' or 3", as "a, b, 3"."""
    text: str = fault["ctx"]["expected"]
    return ", ".join(part.strip("'") for part in re.split(r", | or ", text))


def short(value: Any) -> str:
    """The value as text, cut if it is long; of objects only their type."""
    if isinstance(value, Unbuilt):
        return value.name
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Path):
        value = str(value)
    text = repr(value) if isinstance(value, str | int | float | list | dict) else type(value).__name__
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."
