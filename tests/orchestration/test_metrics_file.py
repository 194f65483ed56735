"""Of a metrics file that is appended to, and written anew by a resumed run, every new line is given once."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.orchestration.metrics_file import NewLines, read_metrics
from modalities_pipeline.reporting.to_disc import drop_results_after


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def line(step: int, time: int = 0, loss: float | None = 1.0) -> dict[str, Any]:
    """A line as the training writes it; `time` tells attempts apart."""
    return {
        "dataloader_tag": "train",
        "num_train_steps_done": step,
        "losses": {"train loss avg": loss},
        "metrics": {},
        "throughput_metrics": {},
        "time": time,
    }


def append(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def steps(new_lines: NewLines) -> list[int]:
    return [line["num_train_steps_done"] for line in new_lines.read()]


def test_only_lines_that_are_added_and_complete_are_given(path: Path) -> None:
    append(path, line(1))
    new_lines = NewLines(path)
    append(path, line(2))
    with path.open("a") as file:
        file.write(json.dumps(line(3))[:20])
    assert steps(new_lines) == [2]
    with path.open("a") as file:
        file.write(json.dumps(line(3))[20:] + "\n")
    assert steps(new_lines) == [3]
    assert steps(new_lines) == []


def test_a_resumed_run_loses_no_line_and_tells_none_twice(path: Path) -> None:
    """The file is replaced by a shorter one, and is longer again than the old one before it is looked at."""
    append(path, *(line(step) for step in range(1, 11)))
    new_lines = NewLines(path)
    drop_results_after(path, 5)
    append(path, *(line(step, time=1) for step in range(6, 15)))
    assert steps(new_lines) == list(range(6, 15))
    append(path, line(15, time=1))
    assert steps(new_lines) == [15]


def test_a_run_that_starts_anew_is_told_from_its_first_step(path: Path) -> None:
    append(path, line(1), line(2))
    new_lines = NewLines(path)
    append(path, line(3))
    assert steps(new_lines) == [3]
    drop_results_after(path, 0)
    assert steps(new_lines) == []
    append(path, line(1, time=1))
    assert steps(new_lines) == [1]


def test_a_file_that_was_cut_in_place_is_read_from_its_start(path: Path) -> None:
    append(path, line(1), line(2))
    new_lines = NewLines(path)
    path.write_text(json.dumps(line(1, time=1)) + "\n")
    assert steps(new_lines) == [1]


def test_a_number_that_is_null_is_nan(path: Path) -> None:
    new_lines = NewLines(path)
    append(path, line(1, loss=None))
    [new], [old] = new_lines.read(), read_metrics(path)
    assert math.isnan(new["losses"]["train loss avg"])
    assert math.isnan(old["losses"]["train loss avg"])


def test_of_two_lines_for_a_step_the_last_counts(path: Path) -> None:
    append(path, line(2, loss=2.0), line(1), line(2, loss=3.0))
    assert [entry["losses"]["train loss avg"] for entry in read_metrics(path)] == [1.0, 3.0]
    assert read_metrics(path.with_name("none")) == []
