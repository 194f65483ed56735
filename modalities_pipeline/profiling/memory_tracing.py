"""What GPU memory is used for, by torch's record of its allocator."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.profiling.profilers import ScheduledProfiler

_MAX_NUM_EVENTS = 100_000


class SteppableMemoryProfiler(ScheduledProfiler):
    """Records allocations of GPU memory.

    Writes `memory_snapshot_ranks_<W>_rank_<r>.pkl`, which https://pytorch.org/memory_viz shows, when the last step is
    over, or what there is of it at the exit. It holds the last 100000 events.
    """

    def __init__(
        self,
        memory_snapshot_folder_path: Path,
        num_wait_steps: int,
        num_warmup_steps: int,
        num_active_steps: int,
        tracked_ranks: Sequence[int] | None = None,
    ) -> None:
        """Say when and where to record; see `ScheduledProfiler`.

        Raises:
            ConfigError: torch sees no GPU, or a tracked rank does not exist.
        """
        if not torch.cuda.is_available():
            raise ConfigError(
                "steppable_profiler/memory_tracing records GPU memory, and torch sees no GPU here. Leave it out; "
                "kernel_tracing with profile_memory: true also tells of memory on the CPU."
            )
        super().__init__(memory_snapshot_folder_path, num_wait_steps, num_warmup_steps, num_active_steps, tracked_ranks)
        self._is_recording = False

    def __enter__(self) -> Self:
        self._num_steps_done = 0
        self._start_if_due()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Record no more; what was recorded before the schedule's end is written."""
        self._stop()
        self._warn_if_too_few()

    def step(self) -> None:
        """A step is over; see `SteppableProfilerIF`."""
        self._num_steps_done += 1
        self._start_if_due()
        if self._num_steps_done == self._num_steps:
            self._stop()

    def _start_if_due(self) -> None:
        if self._is_tracked and self._num_steps_done == self._num_idle_steps:
            torch.cuda.memory._record_memory_history(max_entries=_MAX_NUM_EVENTS)
            self._is_recording = True

    def _stop(self) -> None:
        if self._is_recording:
            self._is_recording = False
            name = f"memory_snapshot_{self._name_suffix}.pkl"
            try:
                self._write(name, lambda path: torch.cuda.memory._dump_snapshot(str(path)))
            finally:
                torch.cuda.memory._record_memory_history(enabled=None)
