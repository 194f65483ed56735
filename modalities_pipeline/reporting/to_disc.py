"""Results as a file with one JSON object a line: what other programs, such as the Dagster asset, follow."""

import json
import math
import time
from pathlib import Path
from typing import Any

from modalities_pipeline.batch import EvaluationResultBatch, ResultItem
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.distributed.env import get_rank
from modalities_pipeline.reporting.broker import Message, MessageSubscriberIF


class ToDiscResultSubscriber(MessageSubscriberIF[EvaluationResultBatch]):
    """Appends a line per result, on rank 0, and flushes it.

    Keys: dataloader_tag, num_train_steps_done, losses, metrics, throughput_metrics (name -> unrounded number, null if
    it is not finite), time (Unix seconds).
    """

    def __init__(self, output_file_path: Path) -> None:
        self._output_file_path = output_file_path
        if get_rank() == 0:
            output_file_path.parent.mkdir(parents=True, exist_ok=True)

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
        with open(self._output_file_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


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
