"""One stage of this package in a fresh process; the counterpart of `peer_stage.py`.

Run: python benchmarks/our_stage.py '<request as JSON>'; `measure.py` does.
"""

import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from api_stages import api_work
from timed_section import Work, measure

from modalities_pipeline import api
from modalities_pipeline.data.pbin import PackedFile

Request = dict[str, Any]


def open_documents(request: Request) -> Work:
    """Open a packed file with its index and read its last document."""

    def run() -> Any:
        file = PackedFile(Path(request["source"]))
        return file, file.num_documents, file.document(file.num_documents - 1).tolist()

    def describe(result: Any) -> Any:
        file, num_documents, last = result
        table = np.array([file.index[i] for i in range(0, num_documents, request["stride"])], dtype="<i8")
        return [num_documents, last, zlib.crc32(table.tobytes())]

    return Work(run, describe)


def iterate(request: Request) -> Work:
    """Every block of the continuous dataset in random order; one by one, or `batch_size` at a time as loaders do."""
    from modalities_pipeline.dataloading.packed_datasets import PackedMemMapDatasetContinuous

    dataset = PackedMemMapDatasetContinuous(
        Path(request["source"]), sequence_length=request["block_size"] - 1, sample_key="x", reuse_last_target=True
    )
    order = np.random.default_rng(request["seed"]).permutation(len(dataset))
    batch_size = request["batch_size"]

    def run() -> None:
        for start in range(0, len(order), request["order_block"]):
            positions = order[start : start + request["order_block"]].tolist()
            if batch_size == 1:
                for position in positions:
                    dataset[position]
            else:
                for first in range(0, len(positions), batch_size):
                    dataset.__getitems__(positions[first : first + batch_size])

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
    return api_work(api, request)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if "warm_up" in given:
        prepare(given["warm_up"]).run()
    measure(given, prepare(given))
