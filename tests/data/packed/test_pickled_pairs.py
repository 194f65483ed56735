"""Pickled lists of pairs of ints, read without unpickling."""

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.data.packed import pickled_pairs
from modalities_pipeline.data.packed.pickled_pairs import unpickle_pairs
from modalities_pipeline.data.packed.pickled_pairs_steps import read_stepwise
from modalities_pipeline.exceptions import DatasetFormatError

Pairs = list[tuple[int, int]]

# Numbers at the borders of opcodes, and numbers whose bytes look like opcodes.
_NUMBERS = [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -1, -12, -(2**31) - 1, -(2**63)]
_LOOK_ALIKES = [0x9486, 0x94004B86, 0x9486004B, 0x2865, 0x4B944B86, 0x86944B00, 0x8694004B, 0x94860086004B, 0x2E65]


def _read(content: bytes) -> Pairs:
    firsts, seconds = unpickle_pairs(np.frombuffer(content, dtype=np.uint8), Path("x.idx"))
    return list(zip(firsts.tolist(), seconds.tolist(), strict=True))


def _pairs(number: int, seed: int = 0) -> Pairs:
    generator = random.Random(seed)
    choices = [*_NUMBERS, *_LOOK_ALIKES]
    return [(generator.choice(choices), generator.choice(choices)) for _ in range(number)]


@pytest.fixture(params=[False, True], ids=["any reader", "in bulk only"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Pairs]:
    """Reader of pairs; the second one fails where bulk reading gives up."""
    if request.param:

        def give_up(_: object) -> None:
            raise ValueError("not in bulk")

        monkeypatch.setattr(pickled_pairs, "read_stepwise", give_up)
    return _read


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("number", [0, 1, 2, 999, 1000, 1001, 1002, 2000, 2001, 9001])
def test_what_python_pickles_is_read_in_bulk(read: Callable[[bytes], Pairs], number: int, protocol: int) -> None:
    pairs = _pairs(number)
    content = pickle.dumps(pairs, protocol=protocol)
    assert read(content) == pairs
    assert read(content + b"\x86\x94 trailing bytes") == pairs


def test_entries_across_blocks_and_frames_are_read_in_bulk(
    read: Callable[[bytes], Pairs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickled_pairs, "_BLOCK_IN_BYTES", 61)
    framed = pickle.dumps(_pairs(20_000), protocol=4)
    assert framed.count(b"\x95") > 3
    assert read(framed) == _pairs(20_000)
    one_frame = pickle.dumps(_pairs(1500), protocol=4)
    assert read(one_frame[:2] + one_frame[11:]) == _pairs(1500)


@pytest.mark.parametrize("protocol", [2, 3])
def test_older_protocols_are_read_too(protocol: int) -> None:
    pairs = _pairs(1500)
    assert _read(pickle.dumps(pairs, protocol=protocol)) == pairs


def test_a_pair_that_occurs_again_as_the_same_object_is_read(tmp_path: Path) -> None:
    pair = (5, 6)
    pairs = [pair, (1, 2), pair, pair] * 300
    for protocol in (2, 4):
        assert _read(pickle.dumps(pairs, protocol=protocol)) == pairs


def test_both_readers_agree() -> None:
    for seed in range(20):
        content = pickle.dumps(_pairs(seed * 7, seed), protocol=4)
        firsts, seconds = read_stepwise(memoryview(content))
        assert list(zip(firsts.tolist(), seconds.tolist(), strict=True)) == _read(content)


class _Harmful:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def test_reading_never_runs_code_from_the_file(tmp_path: Path) -> None:
    for harmful in ([(0, _Harmful(tmp_path / "made"))], _Harmful(tmp_path / "made")):
        for protocol in range(6):
            with pytest.raises(DatasetFormatError, match="not a list"):
                _read(pickle.dumps(harmful, protocol=protocol))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"a": 1}, id="a dict"),
        pytest.param([(0, 2.0)], id="a float"),
        pytest.param([(0, True)], id="a bool"),
        pytest.param([(0, None)], id="none"),
        pytest.param([(0, "1")], id="a string"),
        pytest.param([[0, 4]], id="a list as pair"),
        pytest.param([(0, 4, 4)], id="a triple"),
        pytest.param([(0,)], id="a single"),
        pytest.param([(0, 4), 4], id="a number beside pairs"),
        pytest.param(((0, 4),), id="a tuple of pairs"),
        pytest.param([[(0, 4)]], id="a nested list"),
        pytest.param((0, 4), id="a pair"),
        pytest.param([(0, (1, 2))], id="a nested pair"),
    ],
)
def test_anything_but_a_list_of_pairs_of_ints_is_refused(content: Any) -> None:
    with pytest.raises(DatasetFormatError, match=r"x\.idx: .*not a list of \(offset, length\) pairs"):
        _read(pickle.dumps(content, protocol=4))


def test_numbers_beyond_64_bits_are_refused() -> None:
    for number in (2**63, 2**70, -(2**63) - 1):
        with pytest.raises(DatasetFormatError, match=r"above 2\^63"):
            _read(pickle.dumps([(0, number)], protocol=4))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x80", id="cut in the protocol"),
        pytest.param(b"\x80\x04]", id="no end"),
        pytest.param(b"\x80\x04]\x94" + b"r\xff\xff\xff\x7f.", id="a huge memo"),
        pytest.param(b"\x80\x04]\x94" + b"\x96" + b"\xff" * 7 + b"\x00.", id="a huge bytearray"),
        pytest.param(b"\x80\x04\x8d" + b"\xff" * 7 + b"\x00.", id="a huge string"),
        pytest.param(b"\x80\x04\x8b\xff\xff\xff\x7f.", id="a huge number"),
        pytest.param(b"\x80\x04\x95" + b"\xff" * 8 + b"]\x94.", id="a huge frame"),
        pytest.param(b"\x80\x04" + b"]" * 1_000_000 + b"a" * 999_999 + b".", id="deep nesting"),
        pytest.param(b"\x80\x04]\x94(" + b"2" * 1_000_000 + b"e.", id="a million copies"),
        pytest.param(b"\x80\x04]\x94(" + b"h\x00" * 1_000_000 + b"e.", id="the list in itself"),
        pytest.param(b"\x80\x04(" * 100_000 + b".", id="open marks"),
        pytest.param(b"\x80\x04]\x94" + b"\x86" * 1_000_000, id="pairs of nothing"),
    ],
)
def test_pickle_bombs_are_refused_at_once_and_in_little_memory(content: bytes) -> None:
    with pytest.raises(DatasetFormatError, match=r"x\.idx"):
        _read(content)


def test_damage_never_changes_what_is_read() -> None:
    """What is accepted is exactly what unpickling gives."""
    generator = random.Random(3)
    num_accepted = 0
    for _ in range(3000):
        content = bytearray(pickle.dumps(_pairs(generator.choice([0, 1, 2, 5, 30]), generator.random()), protocol=4))
        for _ in range(generator.choice([1, 1, 2])):
            content[generator.randrange(len(content))] = generator.choice([0x86, 0x94, 0x65, 0x28, 0x61, 0x4B, 0x4A, 7])
        try:
            pairs = _read(bytes(content))
        except DatasetFormatError:
            continue
        num_accepted += 1
        assert pairs == pickle.loads(content)
    assert num_accepted > 300
