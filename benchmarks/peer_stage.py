"""One stage of Modalities in a fresh process, run by the interpreter of Modalities' own environment.

Run: PEER_PYTHON benchmarks/peer_stage.py '<request as JSON>'; `measure.py` does.
"""

import json
import sys
import zlib
from pathlib import Path
from typing import Any

import modalities.api
import numpy as np
from api_stages import api_work
from modalities.dataloader.dataset import PackedMemMapDatasetBase, PackedMemMapDatasetContinuous
from timed_section import Work, measure

Request = dict[str, Any]


def open_documents(request: Request) -> Work:
    """Open a packed file with its index and read its last document."""

    def run() -> Any:
        dataset = PackedMemMapDatasetBase(Path(request["source"]), sample_key="x", load_index=True)
        return dataset, len(dataset), dataset[len(dataset) - 1]["x"].tolist()

    def describe(result: Any) -> Any:
        dataset, num_documents, last = result
        table = np.array([dataset._index[i] for i in range(0, num_documents, request["stride"])], dtype="<i8")
        return [num_documents, last, zlib.crc32(table.tobytes())]

    return Work(run, describe)


def iterate(request: Request) -> Work:
    """Every block of the continuous dataset, one by one, in random order."""
    dataset = PackedMemMapDatasetContinuous(
        Path(request["source"]), sample_key="x", block_size=request["block_size"], reuse_last_target=True
    )
    order = np.random.default_rng(request["seed"]).permutation(len(dataset))

    def run() -> None:
        for start in range(0, len(order), request["order_block"]):
            for position in order[start : start + request["order_block"]].tolist():
                dataset[position]

    def describe(_: None) -> Any:
        return [len(dataset), [zlib.crc32(dataset[i]["x"].astype("<i8").tobytes()) for i in order[:1000].tolist()]]

    return Work(run, describe)


def prepare(request: Request) -> Work:
    """The work of a request."""
    match request["stage"]:
        case "open_documents":
            return open_documents(request)
        case "iterate":
            return iterate(request)
    return api_work(modalities.api, request)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if "warm_up" in given:
        prepare(given["warm_up"]).run()
    measure(given, prepare(given))
