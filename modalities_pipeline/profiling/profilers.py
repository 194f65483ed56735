"""Profilers that are told when a step is over."""

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.distributed.env import get_rank, get_world_size
from modalities_pipeline.exceptions import ConfigError

logger = logging.getLogger(__name__)


class SteppableProfilerIF(ABC):
    """Context in which `step` is called after each step; `len` is how many steps there should be."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Record no more."""

    @abstractmethod
    def step(self) -> None:
        """A step is over."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of steps that the profiler needs."""


class SteppableNoProfiler(SteppableProfilerIF):
    """Records nothing, and needs no steps."""

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing."""

    def step(self) -> None:
        """Nothing."""

    def __len__(self) -> int:
        return 0


class SteppableCombinedProfiler(SteppableProfilerIF):
    """Several profilers at once; needs as many steps as the one that needs most."""

    def __init__(self, profilers: Sequence[SteppableProfilerIF]) -> None:
        self._profilers = list(profilers)
        self._entered: contextlib.ExitStack | None = None
        numbers = [len(profiler) for profiler in self._profilers if len(profiler)]
        if len(set(numbers)) > 1:
            logger.warning("The combined profilers need different numbers of steps: %s.", ", ".join(map(str, numbers)))

    def __enter__(self) -> Self:
        if self._entered is not None:
            raise RuntimeError("A combined profiler is already entered.")
        with contextlib.ExitStack() as stack:
            for profiler in self._profilers:
                stack.enter_context(profiler)
            self._entered = stack.pop_all()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave all, in reverse order."""
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(error_type, error, traceback)

    def step(self) -> None:
        """A step is over; `RuntimeError` outside of the context."""
        if self._entered is None:
            raise RuntimeError("A combined profiler is stepped outside of its context.")
        for profiler in self._profilers:
            profiler.step()

    def __len__(self) -> int:
        return max((len(profiler) for profiler in self._profilers), default=0)


class ScheduledProfiler(SteppableProfilerIF):
    """Base of profilers that wait, warm up, then record, so many steps each, on some ranks."""

    def __init__(
        self,
        folder: Path,
        num_wait_steps: int,
        num_warmup_steps: int,
        num_active_steps: int,
        tracked_ranks: Sequence[int] | None,
    ) -> None:
        """Say when and where to record.

        Args:
            folder: where files are written.
            num_wait_steps, num_warmup_steps, num_active_steps: steps in the order of time.
            tracked_ranks: ranks that record and write; None: all.

        Raises:
            ConfigError: a tracked rank does not exist.
        """
        rank, world_size = get_rank(), get_world_size()
        beyond = [tracked for tracked in tracked_ranks or () if tracked >= world_size]
        if beyond:
            raise ConfigError(
                f"tracked_ranks: there is no rank {', '.join(map(str, beyond))}, only {world_size} ranks."
            )
        self._is_tracked = tracked_ranks is None or rank in tracked_ranks
        self._folder = Path(folder)
        self._name_suffix = f"ranks_{world_size}_rank_{rank}"
        self._num_idle_steps = num_wait_steps + num_warmup_steps
        self._num_steps = self._num_idle_steps + num_active_steps
        self._num_steps_done = 0

    def __len__(self) -> int:
        return self._num_steps

    def _warn_if_too_few(self) -> None:
        if self._is_tracked and self._num_steps_done < self._num_steps:
            what = "nothing was recorded" if self._num_steps_done < self._num_idle_steps else "the rest is missing"
            logger.warning(
                "The profiler needs %d steps, there were only %d: %s.", self._num_steps, self._num_steps_done, what
            )

    def _write(self, name: str, write: Callable[[Path], object]) -> None:
        path = self._folder / name
        with atomic_path(path) as temporary:
            write(temporary)
        logger.info("%s is written.", path)
