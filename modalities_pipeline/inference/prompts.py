"""Prompts with blanks to be filled in."""

import re
from collections.abc import Mapping

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_BLANK = re.compile(rf"\{{\{{(?P<literal>{_NAME})\}}\}}|\{{(?P<name>{_NAME})\}}")


def placeholders(template: str) -> list[str]:
    """The names that stand as `{name}` in a template, each once, in order.

    `{{name}}` stands for the text "{name}"; all other braces, as those of JSON, stand for themselves.
    """
    names = (match["name"] for match in _BLANK.finditer(template))
    return list(dict.fromkeys(name for name in names if name is not None))


def fill_in(template: str, values: Mapping[str, str]) -> str:
    """The template with a value in the place of every placeholder; what the values contain is left as it is."""
    return _BLANK.sub(lambda match: values[match["name"]] if match["name"] else f"{{{match['literal']}}}", template)
