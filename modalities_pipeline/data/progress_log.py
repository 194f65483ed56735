"""Progress of long work: bars on a terminal if the command line asked for them, else lines in the log."""

import contextlib
import logging
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_LINE_INTERVAL_IN_S = 10.0
_BAR_INTERVAL_IN_S = 0.1
_BAR_WIDTH = 20
_MAX_TITLE_LENGTH = 26
_BYTE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

_bars: "Progress | None" = None


@contextlib.contextmanager
def progress_bars(console: "Console") -> "Iterator[Progress]":
    """While this is open, all progress of this process is shown as bars on a terminal instead of lines in the log."""
    from rich.progress import BarColumn, Progress, TextColumn

    global _bars
    columns = (TextColumn("{task.description}"), BarColumn(_BAR_WIDTH), TextColumn("{task.fields[amounts]}"))
    with Progress(*columns, console=console) as _bars:
        try:
            yield _bars
        finally:
            _bars = None


class ProgressLog:
    """Tells how far a piece of work is: done of total, rate, time left. A context manager.

    Lines come every ten seconds at most, so that short work is silent.
    """

    def __init__(self, logger: logging.Logger, title: str, total: int, unit: str) -> None:
        """Start the clock of work of `total` units; the unit "bytes" is shown as KiB, MiB or GiB."""
        self._logger = logger
        self._title = title
        self._total = total
        self._unit = unit
        self._started = self._last = time.monotonic()
        self._bars = _bars
        short_title = title if len(title) <= _MAX_TITLE_LENGTH else f"{title[: _MAX_TITLE_LENGTH - 1]}\u2026"
        self._bar = _bars.add_task(short_title, total=total, amounts="") if _bars is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None and self._bar is not None:
            self._bars.remove_task(self._bar)

    def update(self, done: int) -> None:
        """Tell that `done` units are finished."""
        now = time.monotonic()
        interval = _LINE_INTERVAL_IN_S if self._bars is None else _BAR_INTERVAL_IN_S
        if now - self._last < interval or not done:
            return
        self._last = now
        if self._bars is not None and self._bar is not None:
            self._bars.update(
                self._bar, completed=done, amounts=f"{self._percentage(done)}, {self._rate_and_rest(done, now)}"
            )
        else:
            self._logger.info("%s: %s", self._title, self._amounts(done, now))

    def _amounts(self, done: int, now: float) -> str:
        """For example "100 of 400 documents (25 %), 10 documents/s, 30 s left"."""
        factor, unit, digits = self._scale()
        numbers = f"{done / factor:.{digits}f} of {self._total / factor:.{digits}f} {unit}"
        return f"{numbers} ({self._percentage(done)}), {self._rate_and_rest(done, now)}"

    def _percentage(self, done: int) -> str:
        return f"{100 * done / max(self._total, 1):.0f} %"

    def _rate_and_rest(self, done: int, now: float) -> str:
        """For example "10 documents/s, 30 s left"."""
        factor, unit, digits = self._scale()
        rate = done / max(now - self._started, 1e-9)
        return f"{rate / factor:.{digits}f} {unit}/s, {max(self._total - done, 0) / rate:.0f} s left"

    def _scale(self) -> tuple[int, str, int]:
        """Units per shown unit, name of the shown unit, digits behind its point."""
        if self._unit == "bytes":
            for factor, unit in _BYTE_UNITS:
                if self._total >= factor:
                    return factor, unit, 1
        return 1, self._unit, 0
