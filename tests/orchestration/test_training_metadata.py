"""What is told of a training run: numbers, one line for people, checks."""

import math
from typing import Any

import dagster as dg
import pytest

from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.orchestration import training_metadata
from modalities_pipeline.orchestration.training_metadata import (
    ObservationThrottle,
    check_results,
    counts_of,
    log_line_of,
    numbers_of,
)
from modalities_pipeline.orchestration.training_result import TrainingResult

LINE = {
    "dataloader_tag": "train",
    "num_train_steps_done": 40,
    "losses": {"train loss avg": 5.3125},
    "metrics": {"grad norm avg": math.nan},
    "throughput_metrics": {"lr mean": 0.001},
}


def test_observations_hold_the_finite_numbers_by_loader_and_name() -> None:
    assert numbers_of(LINE) == {"train/step": 40.0, "train/train loss avg": 5.3125, "train/lr mean": 0.001}


def test_the_log_line_shows_the_numbers_that_people_watch_in_short() -> None:
    more = {"throughput_metrics": {"train tokens/s": 7213.4, "lr mean": 0.001, "train mfu (16-bit)": -1.0}}
    expected = "train, step 40: train loss avg 5.312, train tokens/s 7,213, lr mean 0.001"
    assert log_line_of(LINE | more) == expected


def test_observations_become_seldom_in_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(training_metadata.time, "monotonic", lambda: now)
    throttle = ObservationThrottle()
    allowed = 0
    while now < 7 * 24 * 3600:
        allowed += throttle.allows_one()
        now += 5.0
    assert 100 < allowed < 1000


def result_of(train_loss: float) -> TrainingResult:
    return TrainingResult(
        checkpoint_folder_path="x",
        num_steps=2,
        num_tokens=8,
        num_parameters=1,
        train_loss=train_loss,
        evaluation_losses={"val": math.nan},
        duration_in_s=2.0,
        world_size=1,
        device="cpu",
    )


def test_the_manifest_counts_only_numbers_that_json_can_hold() -> None:
    assert counts_of(result_of(1.5)) == {
        "num_steps": 2,
        "num_tokens": 8,
        "num_parameters": 1,
        "num_processes": 1,
        "train_loss": 1.5,
        "train_tokens_per_s": 4.0,
    }
    assert "train_loss" not in counts_of(result_of(math.inf))


def manifest(train_loss: float | None, evaluation_losses: dict[str, float | None]) -> Manifest:
    details = {"evaluation_losses": evaluation_losses, "unigram_cross_entropy": 6.0}
    fields: dict[str, Any] = dict.fromkeys(
        ("stage", "code_version", "fingerprint", "digest", "created_at", "python_version", "package_version"), ""
    )
    return Manifest(
        **fields,
        settings={},
        inputs={},
        size_in_bytes=0,
        modified_at_in_ns=0,
        counts={} if train_loss is None else {"train_loss": train_loss},
        details=details,
        duration_in_s=1.0,
    )


@pytest.mark.parametrize(
    ("train_loss", "evaluation_losses", "is_finite", "is_better"),
    [
        (5.0, {"val": 5.9}, True, True),
        (5.0, {"val": 6.1}, True, False),
        (5.0, {"val": 5.0, "other": 6.1}, True, False),
        (5.0, {}, True, False),
        (None, {"val": 5.0}, False, True),
        (5.0, {"val": None}, False, False),
        (5.0, {"val": None, "other": 5.0}, False, False),
    ],
)
def test_the_checks_compare_with_the_unigram_model(
    train_loss: float | None, evaluation_losses: dict[str, float | None], is_finite: bool, is_better: bool
) -> None:
    finite, better = check_results(manifest(train_loss, evaluation_losses))
    assert (finite.passed, better.passed) == (is_finite, is_better)
    assert is_finite or " nan" in str(finite.description)  # says which loss it is
    assert better.severity is dg.AssetCheckSeverity.WARN
    assert better.metadata["unigram_cross_entropy"].value == 6.0
    specs = {spec.name: spec for spec in training_metadata.check_specs(dg.AssetKey("checkpoint"))}
    assert specs[finite.check_name or ""].blocking
    assert not specs[better.check_name or ""].blocking
