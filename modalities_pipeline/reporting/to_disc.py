"""Results as a file with one JSON object a line: what other programs, such as the Dagster asset, follow."""

import contextlib
import json
import logging
import math
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from modalities_pipeline.batch import EvaluationResultBatch, ResultItem
from modalities_pipeline.data.files import atomic_path, os_errors_named
from modalities_pipeline.distributed.env import get_rank
from modalities_pipeline.reporting.broker import Message, MessageSubscriberIF

logger = logging.getLogger(__name__)

_MAX_NUM_UNWRITTEN = 10_000  # some MB of memory


class ToDiscResultSubscriber(MessageSubscriberIF[EvaluationResultBatch]):
    """Appends a line per result, on rank 0, and flushes it.

    Keys: dataloader_tag, num_train_steps_done, losses, metrics, throughput_metrics (name -> unrounded number, null if
    it is not finite), time (Unix seconds).

    A disk that is full, or not there for a while, is logged and ends nothing: the file is left with whole lines only,
    and those that are missing are written with the next one that can be.

    Raises:
        OutputNotWritableError: the folder of the file cannot be made.
    """

    def __init__(self, output_file_path: Path) -> None:
        self._output_file_path = Path(output_file_path)
        self._unwritten: deque[str] = deque(maxlen=_MAX_NUM_UNWRITTEN)
        self._is_failing = False
        if get_rank() == 0:
            with os_errors_named(self._output_file_path):
                self._output_file_path.parent.mkdir(parents=True, exist_ok=True)

    def consume_message(self, message: Message[EvaluationResultBatch]) -> None:
        """Append one line."""
        if get_rank() != 0:
            return
        result = message.payload
        line = {
            "dataloader_tag": result.dataloader_tag,
            "num_train_steps_done": result.num_train_steps_done,
            "losses": _numbers(result.losses),
            "metrics": _numbers(result.metrics),
            "throughput_metrics": _numbers(result.throughput_metrics),
            "time": time.time(),
        }
        self._unwritten.append(json.dumps(line, allow_nan=False) + "\n")
        self._write()

    def close(self, is_completed: bool) -> None:
        """Try a last time to write what could not be written."""
        if self._unwritten:
            self._write()
        if self._unwritten:
            logger.error("%s lacks %d results.", self._output_file_path, len(self._unwritten))

    def _write(self) -> None:
        try:
            _append("".join(self._unwritten), self._output_file_path)
        except OSError as error:
            if not self._is_failing:
                logger.error("%s cannot be written (%s); the training goes on.", self._output_file_path, error)
            self._is_failing = True
            return
        if self._is_failing:
            logger.warning("%s can be written again.", self._output_file_path)
        self._is_failing = False
        self._unwritten.clear()


def _append(text: str, path: Path) -> None:
    """Append all of a text or nothing."""
    content = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, content) < len(content):
                raise OSError("the disk is full")
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def _numbers(items: dict[str, ResultItem]) -> dict[str, float | None]:
    numbers = {name: item.value.double().mean().item() for name, item in items.items()}
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()}


def read_results(path: Path) -> list[dict[str, Any]]:
    """All complete lines of a results file; a last line that was cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def drop_results_after(path: Path, num_train_steps_done: int) -> None:
    """Remove the lines of later steps, which a run that continues from this step writes anew."""
    results = read_results(path)
    kept = [result for result in results if result["num_train_steps_done"] <= num_train_steps_done]
    if path.exists():
        with atomic_path(path) as temporary:
            temporary.write_text("".join(json.dumps(result) + "\n" for result in kept), encoding="utf-8")
