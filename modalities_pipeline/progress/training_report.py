"""What a training will do, in numbers, before it starts. Imports no torch."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from modalities_pipeline.config.schemas.sections import (
    Sections,
    base_model_of,
    num_epochs_of,
    num_samples_of,
    number,
)
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.progress.gpt2_size import gpt2_size
from modalities_pipeline.progress.memory_estimate import MemoryEstimate, estimate_memory

_MIB = 1024**2
_INTERVALS = ("training_log_interval_in_steps", "evaluation_interval_in_steps", "checkpointing_interval_in_steps")


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """Numbers of a training; None for what is not known.

    Attributes:
        num_target_steps, num_target_tokens: where it ends, counted from the very first step.
        num_seen_steps, num_seen_tokens: where it begins.
        dp_degree, gradient_accumulation_steps, local_micro_batch_size, sequence_length: what one step consists of.
        num_samples_in_dataset: of the training data.
        max_epochs: how often the data loader goes through it at most.
        intervals_in_steps: of logging, evaluation, checkpointing.
        num_evaluations, num_checkpoints: how many this run will make.
        num_parameters: trainable ones, of the whole model.
        memory_per_rank: the estimate.
        warnings: what is worth knowing.
    """

    num_target_steps: int
    num_target_tokens: int
    num_seen_steps: int
    num_seen_tokens: int
    dp_degree: int
    gradient_accumulation_steps: int
    local_micro_batch_size: int
    sequence_length: int
    num_samples_in_dataset: int | None
    max_epochs: int
    intervals_in_steps: dict[str, int]
    num_evaluations: int
    num_checkpoints: int
    num_parameters: int | None
    memory_per_rank: MemoryEstimate | None
    warnings: tuple[str, ...] = ()

    @property
    def samples_per_step(self) -> int:
        """Samples of one optimizer step on all ranks; ranks that share the work on a sample count once."""
        return self.dp_degree * self.gradient_accumulation_steps * self.local_micro_batch_size

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step on all ranks."""
        return self.samples_per_step * self.sequence_length

    @property
    def num_epochs(self) -> float | None:
        """How often the whole training sees the data."""
        if not self.num_samples_in_dataset:
            return None
        return self.num_target_steps * self.samples_per_step / self.num_samples_in_dataset

    def as_dict(self) -> dict[str, int | float | str]:
        """What is known, flat, with units in the names; a Dagster asset shows it as metadata."""
        memory = self.memory_per_rank
        numbers: dict[str, int | float | None] = {
            "num_target_steps": self.num_target_steps,
            "num_target_tokens": self.num_target_tokens,
            "num_seen_steps": self.num_seen_steps,
            "num_seen_tokens": self.num_seen_tokens,
            "tokens_per_step": self.tokens_per_step,
            "samples_per_step": self.samples_per_step,
            "dp_degree": self.dp_degree,
            "num_samples_in_dataset": self.num_samples_in_dataset,
            "num_epochs": None if self.num_epochs is None else round(self.num_epochs, 4),
            **self.intervals_in_steps,
            "num_evaluations": self.num_evaluations,
            "num_checkpoints": self.num_checkpoints,
            "num_parameters": self.num_parameters,
            "estimated_memory_per_rank_in_mib": None if memory is None else round(memory.total / _MIB, 1),
        }
        known = {name: value for name, value in numbers.items() if value is not None}
        return {**known, **({"warnings": "\n".join(self.warnings)} if self.warnings else {})}

    def text(self) -> str:
        """A block of lines for people."""
        data = "not known yet"
        if self.num_samples_in_dataset is not None:
            data = f"{self.num_samples_in_dataset:,} samples, seen {self.num_epochs:.2f} times"
        lines = {
            "target": f"{self.num_target_steps:,} steps, {self.num_target_tokens:,} tokens",
            "done before": f"{self.num_seen_steps:,} steps, {self.num_seen_tokens:,} tokens",
            "per step": (
                f"{self.tokens_per_step:,} tokens = {self.dp_degree} data parallel ranks x "
                f"{self.gradient_accumulation_steps} accumulated micro batches x {self.local_micro_batch_size} samples "
                f"x {self.sequence_length} tokens"
            ),
            "data": data,
            "every": ", ".join(
                f"{value} steps {name.removesuffix('_interval_in_steps').replace('_', ' ')}"
                for name, value in self.intervals_in_steps.items()
            ),
            "this run": f"{self.num_evaluations} evaluations, {self.num_checkpoints} checkpoints",
            "parameters": "not known yet" if self.num_parameters is None else f"{self.num_parameters:,}",
            "memory per rank": _memory_text(self.memory_per_rank),
        }
        warnings = [f"  warning: {warning}" for warning in self.warnings]
        return "\n".join(["Training report", *(f"  {name}: {value}" for name, value in lines.items()), *warnings])


def _memory_text(memory: MemoryEstimate | None) -> str:
    if memory is None:
        return "no estimate for this model"
    parts = ", ".join(
        f"{name.replace('_', ' ')} {value / _MIB:,.0f}" for name, value in dataclasses.asdict(memory).items()
    )
    return f"about {memory.total / _MIB:,.0f} MiB ({parts})"


def training_report(
    sections: Sections, warnings: Sequence[str] = (), num_parameters: int | None = None
) -> TrainingReport | None:
    """The report of the sections of a training config, built or not; None if its numbers are not all known.

    Args:
        sections: top-level key -> settings or (unbuilt) component.
        warnings: to be repeated in the report.
        num_parameters: of the model, if it is built; else the model `gpt2` is counted by its config.
    """
    settings = sections.get("settings")
    numbers = {name: number(settings, *key_path) for name, key_path in _NUMBERS.items()}
    intervals = {name: number(settings, "intervals", name) for name in _INTERVALS}
    known = {name: value for name, value in numbers.items() if value is not None}
    known_intervals = {name: value for name, value in intervals.items() if value is not None}
    if len(known) < len(numbers) or len(known_intervals) < len(intervals):
        return None
    model = base_model_of(sections)
    size = gpt2_size(model.config) if isinstance(model, Unbuilt) else None
    return TrainingReport(
        **known,
        num_samples_in_dataset=num_samples_of(sections.get("train_dataset")),
        max_epochs=num_epochs_of(sections.get("train_dataloader")),
        intervals_in_steps=known_intervals,
        num_evaluations=_num_events(settings, known, "evaluation", "evaluated"),
        num_checkpoints=_num_events(settings, known, "checkpointing", "checkpointed"),
        num_parameters=num_parameters if num_parameters is not None else size.num_parameters if size else None,
        memory_per_rank=estimate_memory(sections),
        warnings=tuple(warnings),
    )


_NUMBERS = {
    "num_target_steps": ("training_target", "num_target_steps"),
    "num_target_tokens": ("training_target", "num_target_tokens"),
    "num_seen_steps": ("training_progress", "num_seen_steps"),
    "num_seen_tokens": ("training_progress", "global_num_seen_tokens"),
    "dp_degree": ("step_profile", "dp_degree"),
    "gradient_accumulation_steps": ("step_profile", "gradient_accumulation_steps"),
    "local_micro_batch_size": ("step_profile", "local_train_micro_batch_size"),
    "sequence_length": ("step_profile", "sequence_length"),
}


def _num_events(settings: Any, known: dict[str, int], what: str, participle: str) -> int:
    """How often the loop does something: whenever the number of all steps is a multiple, and after the last one."""
    interval = getattr(settings.intervals, f"{what}_interval_in_steps")
    first, last = known["num_seen_steps"], known["num_target_steps"]
    is_extra = last % interval != 0 and last > first
    is_extra = is_extra and getattr(settings.consistency_enforcement, f"enforce_last_step_{participle}")
    return last // interval - first // interval + bool(is_extra)
