"""Checks before the first step that a model knows all token ids of its data; on a GPU they would crash it later."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from modalities_pipeline.data.manifest import is_intact, read_manifest
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.dataloading.datasets import CombinedDataset
from modalities_pipeline.dataloading.packed_datasets import PackedMemMapDatasetBase
from modalities_pipeline.exceptions import DatasetFormatError

_BLOCK_IN_TOKENS = 1 << 22


def refuse_unknown_token_ids(
    datasets: Iterable[Any], vocab_size: int, rank: int, num_ranks: int, max_over_ranks: Callable[[int], int]
) -> None:
    """Raise on all ranks if a packed file of the datasets holds an id that is not below `vocab_size`.

    The manifest of a file bounds its ids; a file without one, or with a higher bound, is read, each rank a share.

    Args:
        datasets: those of packed files, and combinations of them, are checked; others have no ids to be looked up.
        vocab_size: number of token ids that the model knows.
        rank: of this process.
        num_ranks: number of processes that call this together.
        max_over_ranks: the largest of the numbers that all of them pass.

    Raises:
        DatasetFormatError: there is such an id; names it, the size and the file.
    """
    paths = dict.fromkeys(path for dataset in datasets for path in _packed_files(dataset))
    for path in paths:
        if (_recorded_num_token_ids(path) or vocab_size + 1) <= vocab_size:
            continue
        largest = max_over_ranks(_largest_token_id(path, rank, num_ranks))
        if largest >= vocab_size:
            raise DatasetFormatError(
                f"{path} holds token id {largest}, but the model knows only the ids below its vocab_size, {vocab_size}."
                f" Set vocab_size to at least {largest + 1}, or pack the data with the model's tokenizer."
            )


def _packed_files(dataset: Any) -> Iterator[Path]:
    if isinstance(dataset, CombinedDataset):
        for member in dataset.datasets:
            yield from _packed_files(member)
    elif isinstance(dataset, PackedMemMapDatasetBase):
        yield dataset.raw_data_path


def _recorded_num_token_ids(path: Path) -> int | None:
    manifest = read_manifest(path)
    if manifest is None or "num_token_ids" not in manifest.details or not is_intact(path, manifest):
        return None
    return int(manifest.details["num_token_ids"])


def _largest_token_id(path: Path, part: int, num_parts: int) -> int:
    """Of every `num_parts`-th block of the file, from block `part` on; -1 if that is none."""
    with PackedFile(path) as file:
        starts = range(part * _BLOCK_IN_TOKENS, file.num_tokens, num_parts * _BLOCK_IN_TOKENS)
        return max((int(file.tokens[start : start + _BLOCK_IN_TOKENS].max()) for start in starts), default=-1)
