"""Progress of long work as log lines: done of total, rate, time left, at most one line every few seconds."""

import logging
import time

_INTERVAL_IN_S = 10.0


class ProgressLog:
    """Logs how far a piece of work is; silent for work shorter than the interval."""

    def __init__(self, logger: logging.Logger, title: str, total: int, unit: str) -> None:
        """Start the clock of work of `total` units."""
        self._logger = logger
        self._title = title
        self._total = total
        self._unit = unit
        self._started = self._last = time.monotonic()

    def update(self, done: int) -> None:
        """Tell that `done` units are finished."""
        now = time.monotonic()
        if now - self._last < _INTERVAL_IN_S or not done:
            return
        self._last = now
        rate = done / (now - self._started)
        self._logger.info(
            "%s: %d of %d %s (%.0f %%), %.0f %s/s, %.0f s left",
            *(self._title, done, self._total, self._unit, 100 * done / max(self._total, 1)),
            *(rate, self._unit, max(self._total - done, 0) / rate),
        )
