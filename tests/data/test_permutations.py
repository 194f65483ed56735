"""The order of Python's own shuffle."""

import random

import pytest

from modalities_pipeline.data import permutations
from modalities_pipeline.data.permutations import shuffled_positions


def _expected(num_positions: int, seed: int) -> list[int]:
    positions = list(range(num_positions))
    random.Random(seed).shuffle(positions)
    return positions


@pytest.mark.parametrize("num_positions", [*range(20), 31, 32, 33, 255, 256, 257, 1000, 65_535, 65_536, 65_537])
def test_positions_are_in_the_order_of_pythons_shuffle(num_positions: int) -> None:
    """B028."""
    for seed in (0, 1, 42, -7, 2**40):
        assert shuffled_positions(num_positions, seed).tolist() == _expected(num_positions, seed)


def test_words_are_drawn_in_blocks_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permutations, "_BLOCK_IN_WORDS", 3)
    for num_positions in (5, 64, 1000):
        assert shuffled_positions(num_positions, 3).tolist() == _expected(num_positions, 3)


def test_more_positions_than_a_word_can_number_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permutations, "_WORD_IN_BITS", 5)
    assert shuffled_positions(100, 3).tolist() == _expected(100, 3)


def test_without_a_seed_every_order_is_another_one() -> None:
    assert shuffled_positions(1000, None) != shuffled_positions(1000, None)
