"""What a finished training run says of itself, and what its manifest keeps of that; losses in nats per token.

JSON knows no NaN: a loss that is not finite is null in every file, and NaN in memory.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.data.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """The content of result.json; `checkpoint_folder_path` is None if the run saved no checkpoint."""

    checkpoint_folder_path: str | None
    num_steps: int
    num_tokens: int
    num_parameters: int
    train_loss: float
    evaluation_losses: dict[str, float]
    duration_in_s: float
    world_size: int
    device: str


def read_result(path: Path) -> TrainingResult | None:
    """The result in a file; None if there is none, or one that is damaged: the run counts as not finished then."""
    try:
        content = json.loads(path.read_text("utf-8"))
        fields = {field.name: content[field.name] for field in dataclasses.fields(TrainingResult)}
        fields["train_loss"] = nan_if_none(fields["train_loss"])
        fields["evaluation_losses"] = {tag: nan_if_none(loss) for tag, loss in fields["evaluation_losses"].items()}
        return TrainingResult(**fields)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def nan_if_none(number: float | None) -> float:
    """A number as it was before it was written to JSON."""
    return math.nan if number is None else number


def finite_or_none(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Numbers by name as JSON can hold them."""
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()}


def train_loss_of(manifest: Manifest) -> float:
    """The training loss that a checkpoint's manifest records, NaN if it was not finite."""
    return manifest.counts.get("train_loss", math.nan)


def evaluation_losses_of(manifest: Manifest) -> dict[str, float]:
    """Tag of each evaluation data loader -> its loss as the manifest records it, NaN if it was not finite."""
    losses: dict[str, Any] = manifest.details["evaluation_losses"]
    return {tag: nan_if_none(loss) for tag, loss in losses.items()}
