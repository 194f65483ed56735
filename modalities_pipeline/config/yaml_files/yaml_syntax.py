"""YAML syntax errors in words: where, what is wrong, what to do."""

import re
from collections.abc import Callable

import yaml

from modalities_pipeline.config.origins import Origin
from modalities_pipeline.exceptions import ConfigError

# the characters that YAML allows; surrogates cannot occur in decoded UTF-8
_CONTROL_CHARACTER = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_BLANK_BEHIND_COLON = re.compile(r"^\s*(?:- )?[A-Za-z_][\w.-]*:[^\s:/]")
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # those that YAML counts

Place = tuple[int, int]  # line and column, from 0


def refuse_control_characters(text: str, source: str) -> None:
    """Raise `ConfigError` at the first character that YAML does not allow, such as NUL."""
    found = _CONTROL_CHARACTER.search(text)
    if found is None:
        return
    before = _LINE_BREAK.split(text[: found.start()])
    origin = Origin(source, len(before), len(before[-1]) + 1)
    raise ConfigError(f"{origin}: the control character U+{ord(found.group()):04X} is not allowed in YAML; remove it.")


def describe_syntax_error(error: yaml.MarkedYAMLError, text: str, source: str) -> str:
    """One line "file:line:column: what is wrong, what to do" of what either of PyYAML's parsers raised."""
    lines = _LINE_BREAK.split(text)
    problem = _place(error.problem_mark or error.context_mark, lines)
    context = _place(error.context_mark or error.problem_mark, lines)
    raw = ", ".join(filter(None, (error.context, error.problem)))
    for pattern, explain in _EXPLANATIONS:
        if re.search(pattern, raw):
            place, message = explain(lines, problem, context)
            return f"{Origin(source, place[0] + 1, place[1] + 1)}: {message}."
    return f"{Origin(source, problem[0] + 1, problem[1] + 1)}: no valid YAML: {raw}."


def _place(mark: yaml.Mark | None, lines: list[str]) -> Place:
    """Where a mark is; one beyond the last line with text means the end of that line."""
    last = max((number for number, line in enumerate(lines) if line.strip()), default=0)
    if mark is None or mark.line > last:
        return last, len(lines[last])
    return mark.line, mark.column


def _in_flow(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    line, column = problem
    if lines[line][column - 1 : column + 1] == "${" or "${" in lines[line][:column].rsplit("}", 1)[-1]:
        return problem, 'inside [...] and {...}, an interpolation has to be in quotes: "${...}"'
    opening = lines[context[0]][context[1] : context[1] + 1]
    closing = {"[": "]", "{": "}"}.get(opening, "]")
    return problem, f"a ',' or '{closing}' is missing; the '{opening}' stands in line {context[0] + 1}"


def _second_colon(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    line, column = problem
    if ": " in lines[line][:column]:
        return problem, "a second ': ' in one line; put a text that holds ': ' in quotes"
    above = next((number for number in range(line - 1, -1, -1) if lines[number].strip()), line)
    if _NO_BLANK_BEHIND_COLON.match(lines[above]):
        return _no_blank(lines, above)
    return problem, "a key is not expected here: the key above has a value already; check the indentation"


def _no_colon(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    if _NO_BLANK_BEHIND_COLON.match(lines[context[0]]):
        return _no_blank(lines, context[0])
    return context, "no 'key: value': the colon is missing"


def _no_blank(lines: list[str], line: int) -> tuple[Place, str]:
    column = lines[line].index(":")
    return (line, column), "a blank is missing behind the colon; write 'key: value'"


def _too_deep(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    return problem, "lists and mappings are nested too deeply"


def _bad_start(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    character = lines[problem[0]][problem[1] : problem[1] + 1]
    if character == "\t":
        return _tab(lines, problem, context)
    return problem, f"a value cannot begin with {character!r}; put it in quotes"


def _tab(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    return problem, "a tab stands where YAML wants blanks; indent and separate with blanks"


def _tag(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    tag = re.split(r"[]\s,}[{]", lines[context[0]][context[1] :])[0]
    return (context[0], context[1] + len(tag)), f"a blank is missing behind the tag; write '{tag} }}' or '{tag} ,'"


def _block_text(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    sign = lines[context[0]][context[1] : context[1] + 1]
    return (
        context,
        f"behind '{sign}', text has to begin in the next line; put a value that begins with it in quotes",
    )


def _name(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    sign = lines[context[0]][context[1] : context[1] + 1]
    what = "an alias" if sign == "*" else "an anchor"
    return context, f"'{sign}' begins {what}, but no name follows; put a value that begins with it in quotes"


def _belongs_nowhere(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    return problem, "this belongs to nothing above; check the indentation"


def _list_element(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    return problem, "a list element ('- ') is not expected here; begin a list in a line of its own"


def _open_quote(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    return context, "the quote that opens here is not closed"


def _escape(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    line, column = problem
    start = lines[line].rfind("\\", 0, column + 1)
    shown = lines[line][start : start + 2]
    return (line, start), f"{shown} is no escape in double quotes; use single quotes, or double the backslash"


def _indentation(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    return problem, f"the indentation fits nothing above; what it belongs to begins in line {context[0] + 1}"


def _not_expected(lines: list[str], problem: Place, context: Place) -> tuple[Place, str]:
    shown = lines[problem[0]][problem[1] : problem[1] + 1]
    return problem, f"{shown!r} is not expected here" if shown else "a value is missing here"


_EXPLANATIONS: list[tuple[str, Callable[[list[str], Place, Place], tuple[Place, str]]]] = [
    (r"maximum nesting depth", _too_deep),
    (r"scanning a tag.*(whitespace|but found)", _tag),
    (r"tab character", _tab),
    (r"cannot start any token", _bad_start),
    (r"flow (sequence|mapping).*expected ','", _in_flow),
    (r"mapping values are not allowed", _second_colon),
    (r"could not find expected ':'", _no_colon),
    (r"scanning a block scalar", _block_text),
    (r"scanning an (alias|anchor)", _name),
    (r"expected '?<document start>", _belongs_nowhere),
    (r"sequence entries are not allowed", _list_element),
    (r"quoted scalar.*unexpected end of stream", _open_quote),
    (r"unknown escape character", _escape),
    (r"block (mapping|collection).*(did not find expected|expected <block end>)", _indentation),
    (r"block node.*(node content)", _not_expected),
    (r"flow node.*(node content)", _not_expected),
]
