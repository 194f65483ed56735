"""Datasets of packed files: which tokens make which sample."""

import bisect
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.dataloading.collators import GPT2LLMCollateFn
from modalities_pipeline.dataloading.packed_datasets import (
    PackedMemMapDatasetBase,
    PackedMemMapDatasetContinuous,
    PackedMemMapDatasetMegatron,
)
from modalities_pipeline.exceptions import ConfigError, DatasetFormatError, DatasetNotFoundError, UserError

VECTORS = Path(__file__).parent / "vectors"
CASES = json.loads((VECTORS / "continuous.json").read_text("utf-8"))
DOCUMENTS = [list(range(6)), list(range(6, 16)), [16, 17, 18], [19]]  # of continuous_2.pbin


def _dataset(case: dict) -> PackedMemMapDatasetContinuous:
    path = VECTORS / Path(case["file"]).name
    return PackedMemMapDatasetContinuous(path, case["sequence_length"], "input_ids", case["reuse_last_target"])


@pytest.fixture
def dataset() -> PackedMemMapDatasetContinuous:
    return PackedMemMapDatasetContinuous(VECTORS / "continuous_2.pbin", 4, "input_ids")


@pytest.fixture
def documents() -> PackedMemMapDatasetBase:
    return PackedMemMapDatasetBase(VECTORS / "continuous_2.pbin", "input_ids")


@pytest.mark.parametrize("case", CASES)
def test_blocks_match_modalities(case):
    if "error" in case:
        with pytest.raises(DatasetFormatError, match="one sample needs"):
            _dataset(case)
        return
    dataset = _dataset(case)
    with PackedFile(VECTORS / Path(case["file"]).name) as file:
        tokens, size = file.tokens, file.token_size_in_bytes
        assert len(dataset) == case["len"]
        for sample, (offset, length) in zip(dataset, case["index_bytes"], strict=True):
            expected = tokens[offset // size : (offset + length) // size]
            assert sample["input_ids"].dtype == np.dtype(case["dtype"])
            assert sample["input_ids"].tolist() == expected.tolist()


def test_documents_match_modalities(documents):
    assert len(documents) == 4
    assert [sample["input_ids"].tolist() for sample in documents] == DOCUMENTS
    assert documents[-1]["input_ids"].tolist() == [19]
    assert documents[0]["input_ids"].dtype == np.int32
    for part in (slice(0, 2), slice(2, 2), slice(1, None), slice(-2, None), slice(3, 1), slice(2, 99)):
        assert [tokens.tolist() for tokens in documents[part]["input_ids"]] == DOCUMENTS[part]
    with pytest.raises(ValueError, match="step 2"):
        documents[0:4:2]
    for index in (4, -5):
        with pytest.raises(IndexError, match="no sample"):
            documents[index]


def test_without_its_index_a_packed_file_has_no_documents():
    documents = PackedMemMapDatasetBase(VECTORS / "continuous_2.pbin", "input_ids", load_index=False)
    for read in (lambda: len(documents), lambda: documents[0], lambda: documents[0:1]):
        with pytest.raises(ValueError, match="opened without its index"):
            read()


@pytest.mark.parametrize("name", ["dataset", "documents"])
def test_a_batch_read_at_once_equals_its_samples_one_by_one(name, request):
    dataset = request.getfixturevalue(name)
    indices = [3, 0, -1, 2]
    for row, index in zip(dataset.__getitems__(indices), indices, strict=True):
        assert row["input_ids"].dtype == dataset[index]["input_ids"].dtype
        assert row["input_ids"].tolist() == dataset[index]["input_ids"].tolist()
    with pytest.raises(IndexError):
        dataset.__getitems__([0, len(dataset)])


def test_slices_give_lists_and_negative_indices_count_from_the_end(dataset):
    assert [row.tolist() for row in dataset[1:3]["input_ids"]] == [dataset[i]["input_ids"].tolist() for i in (1, 2)]
    assert [row.tolist() for row in dataset[-2:]["input_ids"]] == [dataset[i]["input_ids"].tolist() for i in (2, 3)]
    assert dataset[2:2] == dataset[3:1] == {"input_ids": []}
    assert len(dataset[0:99]["input_ids"]) == len(dataset)
    assert dataset[-1]["input_ids"].tolist() == dataset[len(dataset) - 1]["input_ids"].tolist()
    with pytest.raises(ValueError, match="step 2"):
        dataset[::2]
    for index in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError):
            dataset[index]


def test_a_sample_may_be_changed_without_changing_the_file(dataset):
    dataset[0]["input_ids"][:] = 0
    assert dataset[0]["input_ids"].any()


@pytest.mark.parametrize("kind", [PackedMemMapDatasetContinuous, PackedMemMapDatasetMegatron])
def test_a_spawned_worker_gets_the_path_and_not_the_tokens(kind, write_pbin):
    dataset = kind(write_pbin([list(range(1000))] * 30), 16, "input_ids")
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 1000
    copy = pickle.loads(pickled)
    assert len(copy) == len(dataset)
    assert copy[3]["input_ids"].tolist() == dataset[3]["input_ids"].tolist()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatasetNotFoundError, match=r"none\.pbin"):
        PackedMemMapDatasetContinuous(tmp_path / "none.pbin", 4, "input_ids")


def test_positions_beyond_32_bits_are_reached(tmp_path):
    """B024, B025: a sparse file whose data section has more than 2^31 tokens."""
    path, num_tokens = tmp_path / "large.pbin", 2**31 + 600
    with open(path, "wb") as file:
        file.write(num_tokens.to_bytes(8, "little") + (1).to_bytes(4, "little"))
        file.seek(12 + num_tokens - 3)
        file.write(bytes([7, 8, 9]) + b"\x80\x04]\x94.")
    dataset = PackedMemMapDatasetContinuous(path, 2, "input_ids", reuse_last_target=False)
    assert len(dataset) == num_tokens // 2
    last = len(dataset) - 1
    assert dataset[last]["input_ids"].tolist() == dataset.__getitems__([last])[0]["input_ids"].tolist() == [8, 9]


def _blocks(path: Path, sequence_length: int) -> list[list[int]]:
    dataset = PackedMemMapDatasetMegatron(path, sequence_length, "input_ids")
    one_by_one = [sample["input_ids"].tolist() for sample in dataset]
    assert [sample["input_ids"].tolist() for sample in dataset.__getitems__(range(len(dataset)))] == one_by_one
    return one_by_one


@pytest.mark.parametrize(
    ("documents", "blocks"),
    [
        # the cut document is seen again from its start
        ([[1, 1, 1, 9], [2, 2, 9], [3, 9]], [[1, 1, 1, 9, 2], [2, 2, 9, 3, 9]]),
        # a block that ends with a document is followed by the next one
        ([[1, 1, 9], [2, 9], [3, 3, 3, 3, 9]], [[1, 1, 9, 2, 9], [3, 3, 3, 3, 9]]),
        # a long document is cut, its rest never seen
        ([[1, 2, 3, 4, 5, 6, 7, 8, 9], [5, 5, 5, 5, 9]], [[1, 2, 3, 4, 5], [5, 5, 5, 5, 9]]),
        # a long document behind a short one begins a block of its own
        ([[1, 9], [2, 3, 4, 5, 6, 7, 9], [8, 8, 8, 8, 9]], [[1, 9, 2, 3, 4], [2, 3, 4, 5, 6], [8, 8, 8, 8, 9]]),
        # empty documents count for nothing; what does not fill a block at the end is dropped
        ([[], [1, 2, 3, 4, 5, 9], [], [], [2, 3, 4, 5, 9], [6, 9], []], [[1, 2, 3, 4, 5], [2, 3, 4, 5, 9]]),
    ],
)
def test_megatron_blocks_begin_with_documents(documents, blocks, write_pbin):
    assert _blocks(write_pbin(documents), sequence_length=4) == blocks


def test_megatron_blocks_are_found_across_the_parts_in_which_a_long_index_is_read(write_pbin):
    documents = [[1] * (number * 7 % 5) for number in range(66_000)]
    starts = np.cumsum([0] + [len(document) for document in documents]).tolist()
    expected = [0]
    while (following := starts[bisect.bisect_right(starts, expected[-1] + 9) - 1]) + 9 <= starts[-1]:
        expected.append(following)
    dataset = PackedMemMapDatasetMegatron(write_pbin(documents), 8, "input_ids")
    assert dataset._starts.tolist() == expected


def test_the_collator_makes_sequence_length_targets_of_a_megatron_block(write_pbin, build_component):
    path = write_pbin([[1, 1, 1, 9], [2, 2, 9], [3, 9]])
    fields = {"raw_data_path": str(path), "sample_key": "input_ids"}
    for name in ("sequence_length", "block_size"):  # the latter is Modalities' name
        dataset = build_component("dataset", "packed_mem_map_dataset_megatron", **fields, **{name: 4})
        batch = GPT2LLMCollateFn("input_ids", "target_ids")(dataset.__getitems__([0, 1]))
        assert batch.samples["input_ids"].tolist() == [[1, 1, 1, 9], [2, 2, 9, 3]]
        assert batch.targets["target_ids"].tolist() == [[1, 1, 9, 2], [2, 9, 3, 9]]
    with pytest.raises(ConfigError, match="sequence_length"):
        build_component("dataset", "packed_mem_map_dataset_megatron", **fields, sequence_length=1)


def test_a_file_too_short_for_a_megatron_block_is_refused(write_pbin):
    with pytest.raises(DatasetFormatError, match="one sample needs 6"):
        _blocks(write_pbin([[1, 2], [3, 4, 5]]), sequence_length=5)


def test_megatron_blocks_need_documents_that_follow_one_another(write_pbin):
    path = write_pbin([[1, 2], [3, 4], [5, 6]])
    content = path.read_bytes()
    data = content[:12] + content[12:24]
    path.write_bytes(data + pickle.dumps([(0, 4), (8, 4), (4, 4)], protocol=4))
    with pytest.raises(DatasetFormatError, match=r"not back to back \(one ends at byte 4 .* starts at 8\)"):
        _blocks(path, sequence_length=2)


@pytest.mark.parametrize("kind", [PackedMemMapDatasetContinuous, PackedMemMapDatasetMegatron])
def test_sequences_of_one_token_are_refused(kind, write_pbin):
    with pytest.raises(UserError, match="at least 2"):
        kind(write_pbin([[1, 2, 3]]), 1, "input_ids")


def test_workers_yield_the_samples_in_the_order_of_the_sampler_whatever_their_number(write_pbin):
    dataset = PackedMemMapDatasetContinuous(write_pbin([list(range(400))]), 4, "input_ids")
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(1)).tolist()
    batches = [order[start : start + 4] for start in range(0, len(order), 4)]
    collate = GPT2LLMCollateFn("input_ids", "target_ids")
    firsts = []
    for num_workers in (0, 1, 2):
        loader = torch.utils.data.DataLoader(
            dataset, batch_sampler=batches, collate_fn=collate, num_workers=num_workers
        )
        firsts.append([batch.samples["input_ids"][:, 0].tolist() for batch in loader])
    assert firsts[0] == firsts[1] == firsts[2] == [[4 * index for index in batch] for batch in batches]
