"""The text of a JSON line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modalities_pipeline.data.packing.text_extraction import BadDocumentError, TextExtractor
from modalities_pipeline.exceptions import ConfigError

NASTY_LINES = [
    b'{"text": "plain"}',
    b'{"text": ""}',
    b'{"text": "first", "text": "second"}',
    b'{"text": {"text": "x"}, "text": "last"}',
    b'{"Text": "other case", " text": "blank"}',
    b'{"text": null}',
    b'{"text": false}',
    b'{"text": 0}',
    b'{"text": 12345678901234567890123}',
    b'{"text": 1e999}',
    b'{"text": NaN}',
    b'{"text": ["x"]}',
    b'{"text": {}}',
    b'{"a": NaN, "text": "beside NaN"}',
    b'{"a": Infinity, "text": "beside Infinity"}',
    b'{"a": 123456789012345678901234567890, "text": "beside a big number"}',
    b'{"a": -0.0, "b": 1E400, "text": "beside odd numbers"}',
    b'\xef\xbb\xbf{"text": "behind a byte order mark"}',
    b'{"text": "\xef\xbb\xbfmark inside"}',
    b'{"text": "a\\u0000b"}',
    b'{"text": "\\ud83d\\ude00 \xf0\x9f\x98\x80"}',
    b'{"text": "\\ud800"}',
    b'{"text": "\\udc00\\ud800"}',
    b'{"\\ud800": 1, "text": "bad key"}',
    b'{"text": "\\u2028 \xe2\x80\xa8 \\u0085"}',
    b'{"text": "\xef\xbf\xbf \xee\x80\x80"}',
    b'{"text": "\xff"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "raw\ttab"}',
    b'{"text": "bad escape \\x"}',
    b'{"text": "one"} {"text": "two"}',
    b'{"text": "one"} rubbish',
    b'{"text": "one"}{"text": "two"}',
    b'{"text": "cut off',
    b'{"text": "comma",}',
    b"{'text': 'quotes'}",
    b'{"text": "cr"}\r',
    b'  {"text": "blanks"}  ',
    b'{"text": "form feed"}\x0c',
    b'[{"text": "in a list"}]',
    b'"text"',
    b"7",
    b"null",
    b"",
    b"  ",
    b'{"a":' + b"[" * 1100 + b"]" * 1100 + b', "text": "deep"}',
    b'{"text": {"body": "nested"}}',
    b'{"text": {"body": ["x"]}}',
    b'{"text": {"body": null}}',
    b'{"text": {}}',
]


def _outcome(extractor: TextExtractor, line: bytes) -> str:
    """The text, or the reason why there is none."""
    try:
        return f"text {extractor.extract(line)!r}"
    except BadDocumentError as error:
        return f"reason {error.reason}"


@pytest.mark.parametrize("line", NASTY_LINES)
@pytest.mark.parametrize("pattern", [".text", ".text.body"])
def test_plain_key_paths_agree_with_jq(line: bytes, pattern: str) -> None:
    # The same program for jq, but no plain key path to the fast way.
    assert _outcome(TextExtractor(pattern), line) == _outcome(TextExtractor(f"{pattern} | ."), line)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.sampled_from(["text", "body", "x"]), values),
    max_leaves=8,
)


@given(JSON_VALUES, st.booleans())
def test_plain_key_paths_agree_with_jq_on_any_value(value: object, ensure_ascii: bool) -> None:
    line = json.dumps(value, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass")
    for pattern in (".text", ".text.body"):
        assert _outcome(TextExtractor(pattern), line) == _outcome(TextExtractor(f"{pattern} | ."), line)


def test_many_lines_give_the_texts_in_order_and_the_places_of_bad_ones() -> None:
    extractor = TextExtractor(".text")
    texts, faults = extractor.extract_all(NASTY_LINES)
    outcomes = [_outcome(extractor, line) for line in NASTY_LINES]
    assert [f"text {text!r}" for text in texts] == [outcome for outcome in outcomes if outcome.startswith("text")]
    bad = [(position, error.reason) for position, error in faults]
    assert bad == [
        (position, outcome.removeprefix("reason "))
        for position, outcome in enumerate(outcomes)
        if outcome.startswith("reason")
    ]
    assert {reason for _, reason in bad} == {"unreadable_line", "jq_failed", "missing_text", "not_a_string"}


@pytest.mark.parametrize(
    ("pattern", "line", "text"),
    [
        (".a, .b", b'{"a": "x", "b": "y"}', "x"),
        (".a[]", b'{"a": ["x", "y"]}', "x"),
        ('.a + " " + .b', b'{"a": "x", "b": "y"}', "x y"),
        (".", b'"x"', "x"),
        ('.["a b"]', b'{"a b": "x"}', "x"),
        (".a // .b", b'{"b": "y"}', "y"),
        ('[.m[].c] | join("\\n")', b'{"m": [{"c": "x"}, {"c": "y"}]}', "x\ny"),
    ],
)
def test_the_first_output_of_a_pattern_counts(pattern: str, line: bytes, text: str) -> None:
    assert TextExtractor(pattern).extract(line) == text


@pytest.mark.parametrize("pattern", ["empty", ".a | select(. == 3)", ".a?.b?"])
def test_a_pattern_without_output_finds_no_text(pattern: str) -> None:
    with pytest.raises(BadDocumentError, match="finds nothing") as caught:
        TextExtractor(pattern).extract(b'{"a": "x"}')
    assert caught.value.reason == "missing_text"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ('error("x")', r"'error\("),
        ("input", "'input' fails: break"),
        ("input_line_number", "fails: Unknown input line number"),
        (".text | tonumber", r"'\.text \| tonumber' fails"),
        (".text.body", r"'\.text\.body' fails: Cannot index string"),
        ('.text | test("(")', "fails: Regex failure"),
    ],
)
def test_a_pattern_that_fails_on_a_sound_line_is_blamed_itself(pattern: str, message: str) -> None:
    with pytest.raises(BadDocumentError, match=message) as caught:
        TextExtractor(pattern).extract(b'{"text": "sound"}')
    assert caught.value.reason == "jq_failed"
    with pytest.raises(BadDocumentError, match="jq cannot read it") as caught:
        TextExtractor(pattern).extract(b'{"text": "\\ud800"}')
    assert caught.value.reason == "unreadable_line"


@pytest.mark.parametrize("pattern", [".text |", ".a b", "{", ".text\n|"])
def test_a_wrong_pattern_is_a_config_error(pattern: str) -> None:
    with pytest.raises(ConfigError, match="cannot be compiled"):
        TextExtractor(pattern)
