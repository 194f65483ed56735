"""Ids that a model does not know are found before training."""

from pathlib import Path

import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, StageIdentity
from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.data.production import produce
from modalities_pipeline.dataloading import token_ids
from modalities_pipeline.dataloading.datasets import CombinedDataset
from modalities_pipeline.dataloading.packed_datasets import PackedMemMapDatasetContinuous
from modalities_pipeline.dataloading.token_ids import refuse_unknown_token_ids
from modalities_pipeline.exceptions import DatasetFormatError


def _write(path: Path, num_token_ids: int | None = None) -> BuildResult:
    with PackedFileWriter(path, 2) as writer:
        writer.write_document([0, 1, 300])
        writer.write_document([2, 3])
    return BuildResult({}, {} if num_token_ids is None else {"num_token_ids": num_token_ids})


def _dataset(path: Path) -> PackedMemMapDatasetContinuous:
    return PackedMemMapDatasetContinuous(path, sequence_length=2, sample_key="x")


def _check(path: Path, vocab_size: int, rank: int = 0, num_ranks: int = 1, others: int = -1) -> None:
    dataset = CombinedDataset([_dataset(path)])
    refuse_unknown_token_ids([dataset], vocab_size, rank, num_ranks, lambda largest: max(largest, others))


def test_an_id_beyond_the_vocabulary_is_named_with_both_numbers_and_the_file(tmp_path: Path) -> None:
    """B021."""
    _write(tmp_path / "x.pbin")
    _check(tmp_path / "x.pbin", 301)
    with pytest.raises(DatasetFormatError, match=r"x\.pbin holds token id 300, .* vocab_size, 300\. .*at least 301"):
        _check(tmp_path / "x.pbin", 300)


def test_every_rank_reads_its_share_and_hears_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B021."""
    monkeypatch.setattr(token_ids, "_BLOCK_IN_TOKENS", 1)
    _write(tmp_path / "x.pbin")
    _check(tmp_path / "x.pbin", 300, rank=1, num_ranks=2)  # sees the tokens 1 and 2
    with pytest.raises(DatasetFormatError, match="token id 300"):
        _check(tmp_path / "x.pbin", 300, rank=0, num_ranks=2)
    with pytest.raises(DatasetFormatError, match="token id 300"):
        _check(tmp_path / "x.pbin", 300, rank=1, num_ranks=2, others=300)
    _check(tmp_path / "x.pbin", 400, rank=9, num_ranks=10)


def test_a_true_manifest_spares_the_reading_and_a_pessimistic_one_does_not_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pbin"
    identity = StageIdentity("tokenized_pack", "1", {}, {})
    produce(path, [], FileExistencePolicy.ERROR, lambda: identity, lambda temporary: _write(temporary, 1000))
    _check(path, 301)
    monkeypatch.setattr(token_ids, "_largest_token_id", lambda *_: pytest.fail("the file was read"))
    _check(path, 1000)
