"""Which lines are documents."""

import json
import random

import orjson
import pytest

from modalities_pipeline.data.raw.json_lines import FAULT_REASONS, find_fault

_VALUES = [
    *(
        b"1",
        b"-0",
        b"01",
        b"-",
        b"1.",
        b".5",
        b"1e",
        b"1e+",
        b"1E5",
        b"1.5e-3",
        b"+1",
        b"0x1",
        b"1_0",
        b"1e400",
        b"1e-400",
    ),
    *(b"1" * 20, b"1" * 400, b"1" * 4300, b"-" + b"1" * 4301, b"1" * 5000, b"1" * 5000 + b".5", b"1." + b"1" * 5000),
    *(b"true", b"tru", b"TRUE", b"null", b"nul", b"NaN", b"nan", b"Infinity", b"-Infinity", b"+Infinity", b"undefined"),
    *(
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"[1]]",
        b"[" * 50 + b"]" * 50,
        b"[1",
        b'{"a":1,}',
        b"{,}",
        b'{"a"}',
        b'{"a":}',
        b"{a:1}",
    ),
    *(
        b"{'a':1}",
        b"{1:1}",
        b'{"a":1 "b":2}',
        b'{"a":1,"a":2}',
        b"{}",
        b'""',
        b'{"":""}',
        b"/*x*/1",
        b"1 2",
        b"1,2",
        b"1}",
    ),
    *(
        b'"\\n"',
        b'"\\x"',
        b'"\\/"',
        b'"\\\'"',
        b'"\\u0000"',
        b'"\\u12"',
        b'"\\u12G4"',
        b'"\\u 123"',
        b'"abc',
        b'"abc\\"',
    ),
    *(b'"\\ud800"', b'"\\udc00"', b'"\\ud83d\\ude00"', b'"\\ud83dx"', b'"\\ud83d\\ud83d"', b'"\\udc00\\ud800"'),
    *(b'"\x00"', b'"\x01"', b'"\t"', b'"\r"', b'"\x1f"', b'"\x7f"', b'"\x85"', b"\x0c1", b"1\x0c", b"\x0b1", b"\xa01"),
    *(b'"\xff"', b'"\xc3\xa9"', b'"\xc3"', b'"\xc0\x80"', b'"\xe0\x80\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"'),
    *('"\u2028"'.encode(), '"\ufeff"'.encode(), '"\U0001f600"'.encode(), '"\ufffe\uffff"'.encode(), "\u20281".encode()),
    *(
        "1".encode("utf-16"),
        "1".encode("utf-16-le"),
        b"\xef\xbb\xbf1",
        b"\xef\xbb\xbf\xef\xbb\xbf1",
        b"1\r",
        b" \t1 \r\r",
    ),
]
_LINES = [
    line
    for value in _VALUES
    for line in (
        value,
        b'{"text": ' + value + b"}",
        b"[0, " + value + b", 2]",
        b"{" + value + b': "text"}',
        value + b" x",
    )
]


def _is_read(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8-sig"))
    except ValueError:
        return False
    return True


def _is_read_fast(line: bytes) -> bool:
    try:
        orjson.loads(line + b"\n")
    except orjson.JSONDecodeError:
        return False
    return True


def test_a_line_is_a_document_if_python_reads_it_as_utf_8() -> None:
    assert [(find_fault(line) is None, line) for line in _LINES] == [(_is_read(line), line) for line in _LINES]
    assert sum(map(_is_read, _LINES)) > 100


def test_the_fast_reader_takes_nothing_that_python_refuses() -> None:
    assert [line for line in _LINES if _is_read_fast(line) and find_fault(line) is not None] == []


def test_the_fast_reader_takes_no_damaged_line_that_python_refuses() -> None:
    """The seed makes the damage the same in every run."""
    generator = random.Random(4)
    lines = [line for line in _LINES if _is_read_fast(line)]
    num_read = 0
    for _ in range(4000):
        line = bytearray(generator.choice(lines))
        for _ in range(generator.randrange(1, 3)):
            place = generator.randrange(len(line) + 1)
            line[place : place + generator.randrange(2)] = generator.choice(
                b'"\\{}[]:,.-0aeEnu\x00\x7f\xc3\xed '
            ).to_bytes()
        if _is_read_fast(bytes(line)) and b"\n" not in line:
            num_read += 1
            assert find_fault(bytes(line)) is None, bytes(line)
    assert num_read > 200


@pytest.mark.parametrize(
    ("line", "reason", "message"),
    [
        (b'{"text": "\xff"}', "not_utf8", "byte 11 of the line is not UTF-8"),
        (b'{"text": "\xed\xa0\x80"}', "not_utf8", "byte 11 of the line is not UTF-8"),
        (b'{"text": "abc', "not_json", "Unterminated string starting at character 10 of the line"),
        (b'{"a": 1} {"b": 2}', "not_json", "Extra data at character 10 of the line"),
        (b"[" * 100_000, "too_deeply_nested", "nested too deeply"),
        (b"1" * 4301, "too_many_digits", "too many digits"),
    ],
)
def test_the_reason_and_place_of_a_fault_are_told(line: bytes, reason: str, message: str) -> None:
    fault = find_fault(line)
    assert fault is not None
    assert fault.reason == reason
    assert fault.reason in FAULT_REASONS
    assert message in fault.message
