"""Damaged JSON-lines files; `make soak` tries 20,000 of them."""

import pytest

from tests.data.fuzzing_jsonl import run


@pytest.mark.slow
def test_damaged_line_files_end_in_an_error_for_users_or_in_counts_that_add_up() -> None:
    outcomes = run(num_cases=150, seed=1)
    assert sum(outcomes.values()) == 300
    assert set(outcomes) >= {"error: index refused", "error: packed", "skip: packed"}
