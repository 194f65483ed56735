"""Datasets: samples by index, each a dict of 1-D arrays."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol, overload

import jq
import numpy as np
import torch.utils.data
from pydantic import Field, FilePath

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.data.jsonl import LargeFileLinesReader
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.exceptions import DatasetFormatError
from modalities_pipeline.tokenization.tokenizers import TokenizerWrapper

Sample = dict[str, np.ndarray]

# torch has no unsigned 16 and 32 bit integers worth the name: tokens get the next signed type.
_SAMPLE_DTYPES = {1: np.uint8, 2: np.int32, 4: np.int64}
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


class PackedMemMapDatasetContinuousConfig(ComponentConfig):
    """Fields of `packed_mem_map_dataset_continuous`."""

    raw_data_path: Path
    sequence_length: Annotated[int, Field(strict=True, gt=1)]
    sample_key: str
    reuse_last_target: bool = True


class PackedMemMapDatasetContinuous(Dataset):
    """The tokens of a packed file cut into blocks of equal length, regardless of documents; the tail is dropped.

    With `reuse_last_target` a block has sequence_length + 1 tokens and begins with the last token of the block before,
    so that every token but the first is a target once. Without it blocks have sequence_length tokens and do not
    overlap.

    Raises:
        DatasetFormatError: the file has fewer tokens than one block.
    """

    def __init__(
        self, raw_data_path: Path, sequence_length: int, sample_key: str, reuse_last_target: bool = True
    ) -> None:
        super().__init__(raw_data_path, sample_key)
        self.sequence_length = sequence_length
        self.reuse_last_target = reuse_last_target
        self._file = PackedFile(Path(raw_data_path))
        block_size = sequence_length + 1 if reuse_last_target else sequence_length
        num_tokens = self._file.num_tokens
        if num_tokens < block_size:
            raise DatasetFormatError(
                f"{raw_data_path} has {num_tokens} tokens, but one sample needs {block_size}. Use more data, or a "
                "smaller sequence_length."
            )
        windows = np.lib.stride_tricks.sliding_window_view(self._file.tokens, block_size)
        self._blocks = windows[::sequence_length]
        self._dtype = _SAMPLE_DTYPES[self._file.token_size_in_bytes]

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> dict[str, list[np.ndarray]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """One sample, or for a slice (of step 1) a dict with the list of arrays.

        Arrays are uint8, int32 or int64 for tokens of 1, 2 or 4 bytes.

        Raises:
            IndexError: there is no such sample.
            ValueError: the slice has a step other than 1.
        """
        if isinstance(index, slice) and index.step not in (None, 1):
            raise ValueError(f"Slices of step {index.step} are not supported, only of step 1.")
        tokens = self._blocks[index].astype(self._dtype)
        return {self.sample_key: list(tokens) if isinstance(index, slice) else tokens}

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """The samples of a batch, read and cast at once; torch's data loader prefers it to one call per sample."""
        tokens = self._blocks[np.asarray(indices, dtype=np.int64)].astype(self._dtype)
        return [{self.sample_key: row} for row in tokens]


class MemMapDatasetConfig(ComponentConfig):
    """Fields of `mem_map_dataset`."""

    raw_data_path: FilePath
    index_path: FilePath | None = None
    tokenizer: TokenizerWrapper
    jq_pattern: str
    sample_key: str


class MemMapDataset(Dataset):
    """The documents of an indexed JSONL file, tokenized when they are asked for; no end of document is added."""

    def __init__(
        self,
        raw_data_path: Path,
        tokenizer: TokenizerWrapper,
        sample_key: str,
        index_path: Path | None = None,
        jq_pattern: str = ".text",
    ) -> None:
        super().__init__(raw_data_path, sample_key)
        self.tokenizer = tokenizer
        self._reader = LargeFileLinesReader(raw_data_path, index_path=index_path)
        self._filter = jq.compile(jq_pattern)

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._reader)

    def __getitem__(self, index: int) -> Sample:
        """The token ids of document `index`, int64."""
        text = self._filter.input_text(self._reader[index]).first()
        return {self.sample_key: np.asarray(self.tokenizer.tokenize(text), dtype=np.int64)}


class DummySampleDataType(StrEnum):
    """Kind of random numbers."""

    FLOAT = "float"
    INT = "int"


class DummySampleConfig(ComponentConfig):
    """One entry of a dummy sample."""

    sample_key: str
    sample_shape: tuple[int, ...]
    sample_type: DummySampleDataType


class DummyDatasetConfig(ComponentConfig):
    """Fields of `dummy_dataset`."""

    num_samples: Annotated[int, Field(ge=1)]
    sample_definition: list[DummySampleConfig]


class DummyDataset(Dataset):
    """Random samples: standard normal float64, or int64 below 512; the same ones each time."""

    def __init__(self, num_samples: int, sample_definition: list[DummySampleConfig]) -> None:
        super().__init__(raw_data_path=Path(), sample_key=sample_definition[0].sample_key if sample_definition else "")
        self.num_samples = num_samples
        self.sample_definition = sample_definition

    def __len__(self) -> int:
        """Number of samples."""
        return self.num_samples

    def __getitem__(self, index: int) -> Sample:
        """Sample `index`, drawn from a generator seeded by it."""
        if not -self.num_samples <= index < self.num_samples:
            raise IndexError(f"There is no sample {index} among {self.num_samples}.")
        generator = np.random.default_rng(index % self.num_samples)
        return {
            entry.sample_key: generator.standard_normal(entry.sample_shape)
            if entry.sample_type is DummySampleDataType.FLOAT
            else generator.integers(0, _DUMMY_VOCAB_SIZE, entry.sample_shape)
            for entry in self.sample_definition
        }


class CombinedDatasetConfig(ComponentConfig):
    """Fields of `combined`."""

    datasets: Annotated[list[torch.utils.data.Dataset], Field(min_length=1)]


class CombinedDataset(torch.utils.data.Dataset[Any]):
    """Datasets one after the other."""

    def __init__(self, datasets: Sequence[SizedDataset]) -> None:
        self.datasets = list(datasets)
        self._ends = np.cumsum([len(dataset) for dataset in self.datasets])

    def __len__(self) -> int:
        """Number of samples of all datasets."""
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        """Sample `index` counted over all datasets; negative indices count from the end."""
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"There is no sample {index} among {len(self)}.")
        member = int(np.searchsorted(self._ends, position, side="right"))
        start = int(self._ends[member - 1]) if member else 0
        return self.datasets[member][position - start]
