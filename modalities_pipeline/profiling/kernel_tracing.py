"""What runs on CPU and GPU, and how long, by torch's profiler."""

import logging
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.profiling.profilers import ScheduledProfiler

logger = logging.getLogger(__name__)

_NUM_SUMMARY_ROWS = 100


class SteppableKernelProfiler(ScheduledProfiler):
    """Records what runs, where and how long, with torch's profiler.

    Writes `profiler_trace_ranks_<W>_rank_<r>.json` (for chrome://tracing or ui.perfetto.dev) and
    `profiler_summary_ranks_<W>_rank_<r>.txt` when the last step is over, or what there is of it at the exit.
    """

    def __init__(
        self,
        num_wait_steps: int,
        num_warmup_steps: int,
        num_active_steps: int,
        profiler_activities: Sequence[str],
        profile_memory: bool,
        record_shapes: bool,
        with_flops: bool,
        with_stack: bool,
        with_modules: bool,
        output_folder_path: Path,
        tracked_ranks: Sequence[int] | None = None,
    ) -> None:
        """Say what to record; see the flags of `torch.profiler.profile`.

        Args:
            profiler_activities: CPU, CUDA.
            tracked_ranks: ranks that record and write; None: all.

        Raises:
            ConfigError: a tracked rank does not exist, or only CUDA shall be recorded and torch sees no GPU.
        """
        super().__init__(output_folder_path, num_wait_steps, num_warmup_steps, num_active_steps, tracked_ranks)
        self._profile: Any = None
        activities = _usable_activities(profiler_activities)
        self._sort_by = "self_cuda_time_total" if ProfilerActivity.CUDA in activities else "self_cpu_time_total"
        if self._is_tracked:
            self._profile = profile(
                activities=activities,
                schedule=schedule(wait=num_wait_steps, warmup=num_warmup_steps, active=num_active_steps, repeat=1),
                on_trace_ready=self._export,
                profile_memory=profile_memory,
                record_shapes=record_shapes,
                with_flops=with_flops,
                with_stack=with_stack,
                with_modules=with_modules,
            )

    def __enter__(self) -> Self:
        self._num_steps_done = 0
        if self._profile:
            self._profile.__enter__()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Record no more; what was recorded before the schedule's end is written."""
        if self._profile:
            self._profile.__exit__(error_type, error, traceback)
        self._warn_if_too_few()

    def step(self) -> None:
        """A step is over; see `SteppableProfilerIF`."""
        self._num_steps_done += 1
        if self._profile:
            self._profile.step()

    def _export(self, recorded: profile) -> None:
        self._write(f"profiler_trace_{self._name_suffix}.json", lambda path: recorded.export_chrome_trace(str(path)))
        try:
            table = recorded.key_averages().table(sort_by=self._sort_by, row_limit=_NUM_SUMMARY_ROWS)
        except UnicodeDecodeError as error:  # torch cuts the names of places in the source, also within a character
            logger.warning("There is no summary of the profile, only the trace: %s.", error)
            return
        self._write(f"profiler_summary_{self._name_suffix}.txt", lambda path: path.write_text(table, encoding="utf-8"))


def _usable_activities(names: Sequence[str]) -> list[ProfilerActivity]:
    if "CUDA" in names and not torch.cuda.is_available():
        if set(names) == {"CUDA"}:
            raise ConfigError("profiler_activities: CUDA alone cannot be recorded here, torch sees no GPU. Add CPU.")
        logger.warning("torch sees no GPU: only what runs on the CPU is recorded.")
        names = [name for name in names if name != "CUDA"]
    return [getattr(ProfilerActivity, name) for name in dict.fromkeys(names)]
