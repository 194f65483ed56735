"""Damaged packed files and indices; `make soak` tries 20,000 of them."""

from tests.data.fuzzing import run


def test_damaged_packs_and_indices_are_refused_or_read_as_they_say() -> None:
    outcomes = run(num_cases=300, seed=1)
    assert sum(outcomes.values()) == 600
    assert set(outcomes) == {"pack read", "pack refused", "index read", "index refused"}
    assert min(outcomes.values()) > 30
