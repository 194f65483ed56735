"""Chat templates: the messages of a conversation as one text, through Jinja as Modalities and Hugging Face use it."""

import json
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from modalities_pipeline.exceptions import ConfigError

_FILE_NAME_OF_TEMPLATES = "<template>"  # Jinja's, in tracebacks
_MAX_TEXT_IN_CHARACTERS = 100_000_000
_MAX_POWER_IN_BITS = 4096


class TemplateRenderError(ValueError):
    """A conversation cannot be rendered; the message says why, and where in the template."""


class _Environment(ImmutableSandboxedEnvironment):
    """Refuses `*` and `**` whose result would be huge, which Jinja's sandbox lets pass."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The result of an operation."""
        if operator == "**" and _power_in_bits(left, right) > _MAX_POWER_IN_BITS:
            raise TemplateError(f"the result of ** has more than {_MAX_POWER_IN_BITS} bits")
        if operator == "*" and _repetition_in_items(left, right) > _MAX_TEXT_IN_CHARACTERS:
            raise TemplateError(f"the result of * has more than {_MAX_TEXT_IN_CHARACTERS} items")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """A Jinja template that sees `messages` (a list of dicts) and `chat_template_data`.

    As in Modalities, a line that ends with `}` is joined to a next one that starts with `{`, so that tags may stand on
    lines of their own; newlines behind and blanks before a block tag are dropped. Names that are not defined render as
    nothing. There are the filter `tojson`, which escapes nothing for HTML, and the function `raise_exception(message)`.
    A mistake in a template must not take all memory: texts, repetitions and powers have limits far above any use.
    """

    def __init__(self, source: str, chat_template_data: Mapping[str, Any]) -> None:
        """Compile a template.

        Raises:
            ConfigError: it is no Jinja template; the message names the line.
        """
        environment = _Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        self._data = dict(chat_template_data)
        # renders the same, but keeps the lines apart: for telling where in the template a fault is
        with_lines = source.replace("}\n{", "}{#\n#}{")
        try:
            self._template = environment.from_string(source.replace("}\n{", "}{"))
            self._template_with_lines = environment.from_string(with_lines)
        except TemplateSyntaxError as error:
            line_number = _line_of_syntax_error(environment, with_lines)
            raise ConfigError(f"line {line_number or error.lineno} of the template: {error.message}.") from error

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text of a conversation.

        Raises:
            TemplateRenderError: the template raises an error, or cannot cope with these messages.
        """
        try:
            return self._render(self._template, messages)
        except Exception as error:  # an expression of a template can raise anything
            line_number = self._failing_line(messages)
            where = f"line {line_number} of the template: " if line_number else ""
            raise TemplateRenderError(f"{where}{error or type(error).__name__}") from error

    def _render(self, template: Template, messages: Sequence[Mapping[str, Any]]) -> str:
        pieces, size = [], 0
        for piece in template.generate(messages=messages, chat_template_data=self._data):
            size += len(piece)
            if size > _MAX_TEXT_IN_CHARACTERS:
                raise TemplateError(f"the text has more than {_MAX_TEXT_IN_CHARACTERS} characters")
            pieces.append(piece)
        return "".join(pieces)

    def _failing_line(self, messages: Sequence[Mapping[str, Any]]) -> int | None:
        try:
            self._render(self._template_with_lines, messages)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == _FILE_NAME_OF_TEMPLATES]
            return lines[-1] if lines else None
        return None


def _power_in_bits(base: Any, exponent: Any) -> int:
    """Size of a power of ints; 0 for other things."""
    return base.bit_length() * exponent if isinstance(base, int) and isinstance(exponent, int) else 0


def _repetition_in_items(left: Any, right: Any) -> int:
    """Length of a text or list that is repeated; 0 for other things."""
    if isinstance(left, Sequence) and isinstance(right, int):
        return len(left) * right
    return len(right) * left if isinstance(right, Sequence) and isinstance(left, int) else 0


def _line_of_syntax_error(environment: ImmutableSandboxedEnvironment, source: str) -> int | None:
    try:
        environment.parse(source)
    except TemplateSyntaxError as error:
        return error.lineno
    return None


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
