"""Chat templates: what they render, and where they say a fault is."""

import pytest

from modalities_pipeline.data.instruction.chat_template import ChatTemplate, TemplateRenderError
from modalities_pipeline.exceptions import ConfigError

MESSAGES = [{"role": "User", "content": "1 < 2 & ä"}, {"role": "Assistant", "content": "yes"}]


def _render(source: str, **data: object) -> str:
    return ChatTemplate(source, data).render(MESSAGES)


def test_tags_may_stand_on_lines_of_their_own():
    source = (
        "{% for m in messages %}\n{{ m.role }}\n{{ ':' }}\n  {% if m.role == 'User' %}\n?\n{% endif %}\n{% endfor %}\n"
    )
    assert _render(source) == "User:\n?\nAssistant:\n"


def test_only_a_brace_at_both_sides_joins_lines():
    assert _render("{{ 'a' }}\n{{ 'b' }}\nc\n{{ 'd' }}") == "ab\nc\nd"


def test_names_that_are_not_defined_render_as_nothing():
    assert _render("[{{ nothing }}{{ chat_template_data.nothing }}]") == "[]"


def test_data_of_the_config_are_seen():
    assert _render("{{ chat_template_data.system }}", system="Be brief.") == "Be brief."


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("messages[0] | tojson", '{"role": "User", "content": "1 < 2 & ä"}'),
        ("messages[0].content | tojson(ensure_ascii=true)", '"1 < 2 & \\u00e4"'),
        ("messages[0] | tojson(separators=(',', ':'), sort_keys=true)", '{"content":"1 < 2 & ä","role":"User"}'),
        ("[1] | tojson(indent=1)", "[\n 1\n]"),
    ],
)
def test_json_is_not_escaped_for_html(call, text):
    assert _render(f"{{{{ {call} }}}}") == text


def test_templates_can_refuse_a_conversation():
    source = (
        "{{ 'start' }}\n{% for m in messages %}\n{% if m.role == 'Assistant' %}\n{{ raise_exception('no answers') }}\n"
        "{% endif %}\n{% endfor %}\n"
    )
    with pytest.raises(TemplateRenderError, match="line 4 of the template: no answers"):
        _render(source)


def test_what_an_expression_cannot_do_is_told_with_its_line():
    with pytest.raises(TemplateRenderError, match=r"line 2 of the template: .*has no attribute"):
        _render("{{ 'a' }}\n{{ messages.nothing.more }}")
    with pytest.raises(TemplateRenderError, match=r"line 3 of the template: .*str"):
        _render("{{ 'a' }}\n{{ 'b' }}\n{{ 1 + messages[0].content }}")


def test_a_template_cannot_change_messages_or_reach_into_python():
    for source in ("{{ messages.append(1) }}", "{{ messages[0].update({'a': 1}) }}", "{{ ().__class__.__base__ }}"):
        with pytest.raises(TemplateRenderError, match=r"unsafe|not safely"):
            _render(source)


@pytest.mark.parametrize(
    ("source", "line_number"),
    [("{{ 'a' }}\n{{ 'b' }}\n{% for %}", 3), ("{{ 'a' }}\n{% if x %}\n{{ 'b' }}\n", 3), ("{{ 'a' | nothing }}", 1)],
)
def test_what_is_no_template_is_refused_with_its_line(source, line_number):
    with pytest.raises(ConfigError, match=f"line {line_number} of the template"):
        _render(source)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'a' * 10000000000", r"\* has more than"),
        ("10000000000 * [messages]", r"\* has more than"),
        ("10 ** 100000", r"\*\* has more than"),
        ("{% for i in range(30000) %}{{ 'ab' * 5000 }}{% endfor %}", "the text has more than"),
    ],
)
def test_a_template_that_would_take_all_memory_is_refused(expression, message):
    source = expression if "{" in expression else f"{{{{ {expression} }}}}"
    with pytest.raises(TemplateRenderError, match=f"line 1 of the template: .*{message}|^{message}"):
        _render(source)


def test_ordinary_sums_are_no_offence():
    assert _render("{{ 2 * 3 }} {{ 'ab' * 2 }} {{ 2 ** 10 }} {{ 2.5 * 2 }}") == "6 abab 1024 5.0"
