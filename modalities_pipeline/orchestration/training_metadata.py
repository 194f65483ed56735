"""What Dagster shows of a training run: observations while it runs, numbers, a picture and checks afterwards."""

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import dagster as dg

from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.orchestration import plots
from modalities_pipeline.orchestration.metrics_file import MetricsLine, read_metrics
from modalities_pipeline.orchestration.training_result import TrainingResult, evaluation_losses_of, train_loss_of
from modalities_pipeline.orchestration.training_run import TrainingRun

LOSS_IS_FINITE = "loss_is_finite"
BETTER_THAN_UNIGRAM = "better_than_unigram"

_FIRST_PAUSE_IN_S = 2.0
_MAX_POINTS_PER_LINE = 500
_WATCHED = ("loss", "Loss", "grad norm last", "lr", "tokens/s")  # parts of the names of metrics; the file has all


class ObservationThrottle:
    """Lets observations through so seldom that even a run of weeks has a few hundred; the metrics file has them all."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._last = -math.inf

    def allows_one(self) -> bool:
        """Whether an observation may be made now; the pause between two grows to 1 % of the time since the start."""
        now = time.monotonic()
        if now - self._last < max(_FIRST_PAUSE_IN_S, (now - self._started) / 100):
            return False
        self._last = now
        return True


def numbers_of(line: MetricsLine) -> dict[str, float]:
    """All finite numbers of a metrics line by name: step, losses, metrics, throughput."""
    tag = line["dataloader_tag"]
    numbers = {f"{tag}/step": float(line["num_train_steps_done"])}
    for group in ("losses", "metrics", "throughput_metrics"):
        numbers.update({f"{tag}/{name}": float(value) for name, value in line[group].items()})
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def log_line_of(line: MetricsLine) -> str:
    """The numbers of a metrics line that people watch, as "train, step 40: train loss avg 5.31, lr mean 0.001"."""
    values = {**line["losses"], **line["metrics"], **line["throughput_metrics"]}
    watched = [name for name in values if any(part in name for part in _WATCHED)]
    numbers = ", ".join(f"{name} {_short(values[name])}" for name in watched)
    return f"{line['dataloader_tag']}, step {line['num_train_steps_done']}: {numbers}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def counts_of(result: TrainingResult) -> dict[str, int | float]:
    """The finite numbers of a finished run for its manifest."""
    counts = {
        "num_steps": result.num_steps,
        "num_tokens": result.num_tokens,
        "num_parameters": result.num_parameters,
        "num_processes": result.world_size,
        "train_loss": result.train_loss,
        **{f"{tag}_loss": loss for tag, loss in result.evaluation_losses.items()},
        "train_tokens_per_s": result.num_tokens / result.duration_in_s if result.duration_in_s else 0.0,
    }
    return {name: number for name, number in counts.items() if math.isfinite(number)}


def describe_run(run: TrainingRun, manifest: Manifest) -> dict[str, Any]:
    """Metadata of the checkpoint: where everything is, the loss curve, the learning rate."""
    lines = read_metrics(run.metrics_path)
    levels = {"unigram model": manifest.details["unigram_cross_entropy"]}
    title = f"Loss of {run.folder.parent.parent.name} ({run.folder.name})"
    pictures = {"loss_curve": plots.line_plot(_losses(lines), title, "step", "nats per token", levels)}
    learning_rates = _series(lines, "throughput_metrics", "lr")
    if learning_rates:
        pictures["learning_rate"] = plots.line_plot(learning_rates, "Learning rate", "step", "learning rate")
    return {
        **_planned(run),
        "run_folder": dg.MetadataValue.path(run.folder),
        "log": dg.MetadataValue.path(run.log_path),
        "device": manifest.details["device"],
        "unigram_cross_entropy": manifest.details["unigram_cross_entropy"],
        **{name: dg.MetadataValue.md(picture) for name, picture in pictures.items()},
    }


def _planned(run: TrainingRun) -> dict[str, Any]:
    """The numbers of the report that the run wrote before its first step, if it did."""
    try:
        report = json.loads(run.report_path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def check_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The checks of a trained checkpoint."""
    return [
        dg.AssetCheckSpec(LOSS_IS_FINITE, asset=key, blocking=True, description="Every final loss is a finite number."),
        dg.AssetCheckSpec(
            BETTER_THAN_UNIGRAM,
            asset=key,
            description="The validation loss is below that of a unigram model of the training tokens.",
        ),
    ]


def check_results(manifest: Manifest) -> list[dg.AssetCheckResult]:
    """The results of `check_specs`, from what was recorded of the run."""
    validation_losses = evaluation_losses_of(manifest)
    unigram: float = manifest.details["unigram_cross_entropy"]
    losses = {"train": train_loss_of(manifest), **validation_losses}
    not_finite = [f"{tag} {loss}" for tag, loss in losses.items() if not math.isfinite(loss)]
    return [
        dg.AssetCheckResult(
            check_name=LOSS_IS_FINITE,
            passed=not not_finite,
            description=f"Losses that are not finite: {', '.join(not_finite)}." if not_finite else None,
            metadata={f"{tag}_loss": str(loss) for tag, loss in losses.items()},
        ),
        dg.AssetCheckResult(
            check_name=BETTER_THAN_UNIGRAM,
            # written so that NaN is not better
            passed=bool(validation_losses) and all(loss < unigram for loss in validation_losses.values()),
            severity=dg.AssetCheckSeverity.WARN,
            description=None if validation_losses else "The run evaluated nothing.",
            metadata={
                **{f"{tag}_loss": _displayable(loss) for tag, loss in validation_losses.items()},
                "unigram_cross_entropy": unigram,
            },
        ),
    ]


def _displayable(number: float) -> float | str:
    """NaN is no JSON, so the UI could not read it as a number."""
    return number if math.isfinite(number) else str(number)


def _losses(lines: Sequence[MetricsLine]) -> dict[str, plots.Series]:
    """One curve per data loader: the first of its losses, which is the average."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        loss = next(iter(line["losses"].values()), math.nan)
        curves.setdefault(line["dataloader_tag"], []).append((line["num_train_steps_done"], loss))
    return {tag: _thinned(points) for tag, points in curves.items()}


def _series(lines: Sequence[MetricsLine], group: str, prefix: str) -> dict[str, plots.Series]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        for name, value in line[group].items():
            if name.startswith(prefix):
                curves.setdefault(name, []).append((line["num_train_steps_done"], value))
    return {name: _thinned(points) for name, points in curves.items()}


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    step = math.ceil(len(points) / _MAX_POINTS_PER_LINE)
    return points if step <= 1 else [*points[::step], points[-1]]
