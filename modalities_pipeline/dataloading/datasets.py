"""Datasets: samples by index, each a dict of arrays. Those of packed files are in `packed_datasets`."""

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch.utils.data
from numpy.typing import NDArray

from modalities_pipeline.data.jsonl import LargeFileLinesReader
from modalities_pipeline.data.packing.text_extraction import BadDocumentError, TextExtractor
from modalities_pipeline.dataloading.configs import DummySampleConfig, DummySampleDataType
from modalities_pipeline.exceptions import ConfigError, DatasetFormatError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

Sample = dict[str, np.ndarray]

_DUMMY_VOCAB_SIZE = 512


class Dataset(torch.utils.data.Dataset[Sample]):
    """A dataset whose samples have their tokens under `sample_key`."""

    def __init__(self, raw_data_path: Path, sample_key: str) -> None:
        self.raw_data_path = raw_data_path
        self.sample_key = sample_key


class SizedDataset(Protocol):
    """A dataset with a length."""

    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, index: int) -> Any:
        """Sample `index`."""


def checked_position(index: int, num_samples: int) -> int:
    """`index` as a position from the start; negative indices count from the end.

    Raises:
        IndexError: there is no such sample.
    """
    position = operator.index(index)
    if not -num_samples <= position < num_samples:
        raise IndexError(f"There is no sample {position} among {num_samples}.")
    return position % num_samples


class MemMapDataset(Dataset):
    """The documents of an indexed JSONL file, tokenized when they are asked for; no end of document is added.

    Unlike Modalities, which gives bare lists, samples are dicts as those of every other dataset, so that collators
    take them.
    """

    def __init__(
        self,
        raw_data_path: Path,
        tokenizer: TokenizerWrapper,
        sample_key: str,
        index_path: Path | None = None,
        jq_pattern: str = ".text",
    ) -> None:
        """Open the file.

        Raises:
            DatasetNotFoundError: the file or its index does not exist.
            DatasetFormatError: the index does not fit the file.
            ConfigError: the pattern is no jq pattern.
        """
        super().__init__(raw_data_path, sample_key)
        self.tokenizer = tokenizer
        self._arguments = (raw_data_path, tokenizer, sample_key, index_path, jq_pattern)
        self._reader = LargeFileLinesReader(raw_data_path, index_path=index_path)
        self._extractor = TextExtractor(jq_pattern)

    def __reduce__(self) -> tuple[type["MemMapDataset"], tuple[Any, ...]]:
        """Data loader workers that are spawned open the file themselves."""
        return type(self), self._arguments

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._reader)

    def __getitem__(self, index: int) -> Sample:
        """The token ids of document `index`, int64 of shape (length,); negative indices count from the end.

        Raises:
            IndexError: there is no such document.
            DatasetFormatError: the document has no text at the jq pattern.
        """
        position = checked_position(index, len(self))
        try:
            text = self._extractor.extract(self._reader.line_bytes(position))
        except BadDocumentError as error:
            line_number = self._reader.line_number(position)
            raise DatasetFormatError(f"{self.raw_data_path}, line {line_number}: {error}. Mend the line.") from error
        return {self.sample_key: np.asarray(self.tokenizer.tokenize(text), dtype=np.int64)}


class DummyDataset(Dataset):
    """Random samples: standard normal float64, or int64 in [0, 512); sample i is the same each time."""

    def __init__(self, num_samples: int, sample_definition: list[DummySampleConfig]) -> None:
        super().__init__(raw_data_path=Path(), sample_key=sample_definition[0].sample_key if sample_definition else "")
        self.num_samples = num_samples
        self.sample_definition = sample_definition

    def __len__(self) -> int:
        """Number of samples."""
        return self.num_samples

    def __getitem__(self, index: int) -> Sample:
        """Sample `index`, drawn from a generator seeded by it; `IndexError` if there is none."""
        generator = np.random.default_rng(checked_position(index, self.num_samples))
        return {
            entry.sample_key: generator.standard_normal(entry.sample_shape)
            if entry.sample_type is DummySampleDataType.FLOAT
            else generator.integers(0, _DUMMY_VOCAB_SIZE, entry.sample_shape)
            for entry in self.sample_definition
        }


class CombinedDataset(torch.utils.data.Dataset[Any]):
    """Datasets one after the other; a sample lies in one of them and never mixes two."""

    def __init__(self, datasets: Sequence[SizedDataset]) -> None:
        """Combine datasets, of which some may be empty.

        Raises:
            ConfigError: the list is empty.
        """
        if not datasets:
            raise ConfigError("dataset.combined: the list of datasets is empty. Name at least one.")
        self.datasets = list(datasets)
        self._ends: NDArray[np.int64] = np.cumsum([len(dataset) for dataset in self.datasets], dtype=np.int64)

    def __len__(self) -> int:
        """Number of samples of all datasets."""
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        """Sample `index` counted over all datasets; negative indices count from the end.

        Raises:
            IndexError: there is no such sample.
        """
        member, position = self._locate(index)
        return self.datasets[member][position]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples of a batch in the order of `indices`; each dataset is asked once for all of its samples."""
        places: dict[int, list[tuple[int, int]]] = {}
        for place, index in enumerate(indices):
            member, position = self._locate(index)
            places.setdefault(member, []).append((place, position))
        samples: list[Any] = [None] * len(indices)
        for member, pairs in places.items():
            found = _samples_of(self.datasets[member], [position for _, position in pairs])
            for (place, _), sample in zip(pairs, found, strict=True):
                samples[place] = sample
        return samples

    def _locate(self, index: int) -> tuple[int, int]:
        """Number of the dataset, and position in it."""
        position = checked_position(index, len(self))
        member = int(np.searchsorted(self._ends, position, side="right"))
        return member, position - (int(self._ends[member - 1]) if member else 0)


def _samples_of(dataset: SizedDataset, positions: list[int]) -> list[Any]:
    get_batch: Callable[[list[int]], list[Any]] | None = getattr(dataset, "__getitems__", None)
    return get_batch(positions) if get_batch else [dataset[position] for position in positions]
