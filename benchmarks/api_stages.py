"""The stages that both packages offer as functions with the same names and arguments.

The standard library only: Modalities' interpreter imports this too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from timed_section import Work


def api_work(api: Any, request: dict[str, Any]) -> Work:
    """The call that a request stands for; `api` is the module `api` of either package."""
    error = api.FileExistencePolicy.ERROR
    if request["stage"] == "pack":
        return Work(lambda: api.pack_encoded_data(request["pack_config"], error))
    output, seed = Path(request["output"]), request.get("seed")
    if request["stage"] == "merge":
        sources = [Path(source) for source in request["sources"]]
        return Work(lambda: api.merge_packed_data_files(sources, output))
    source = Path(request["source"])
    calls: dict[str, Callable[[], None]] = {
        "raw_index": lambda: api.create_raw_data_index(source, output, error),
        "chunk": lambda: api.create_shuffled_dataset_chunk([source], output, 0, 2, error, global_seed=seed),
        "chunk_jsonl": lambda: api.create_shuffled_jsonl_dataset_chunk([source], output, 0, 2, error, global_seed=seed),
        "shuffle": lambda: api.shuffle_tokenized_data(source, output, 100, error, seed=seed),
        "shuffle_jsonl": lambda: api.shuffle_jsonl_data(source, output, error, seed=seed),
        "filter": lambda: api.create_filtered_tokenized_dataset(source, lambda i: i % 2 == 0, output, error),
    }
    return Work(calls[request["stage"]])
