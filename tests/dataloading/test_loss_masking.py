"""Loss masking: which targets stay in the loss, row by row."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from modalities_pipeline.dataloading.collator_configs import LossMaskingTokenConfig
from modalities_pipeline.dataloading.collators import GPT2LLMCollateFn
from modalities_pipeline.dataloading.loss_masking import LossMaskingCollateFnWrapper
from modalities_pipeline.exceptions import BatchStateError, ConfigError, UserError
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

CASES = json.loads((Path(__file__).parent / "vectors" / "loss_masking.json").read_text("utf-8"))
BEGIN, END, IGNORED = 3, 4, -100  # <b> and <e> of the tiny tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_wordlevel_dir) -> PreTrainedHFTokenizer:
    return PreTrainedHFTokenizer(str(tiny_wordlevel_dir))


@pytest.fixture
def make_collate(tokenizer, build_component):
    def make(**changes) -> LossMaskingCollateFnWrapper:
        fields = {
            "wrapped_collate_fn": GPT2LLMCollateFn("s", "t"),
            "target_keys_to_mask": ["t"],
            "loss_ignore_index": IGNORED,
            "mask_tokens": {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<e>"},
            "tokenizer": tokenizer,
            **changes,
        }
        return build_component("collate_fn", "mask_loss_collator_wrapper", **fields)

    return make


def _samples(rows: list[list[int]], dtype: str = "int32") -> list[dict[str, np.ndarray]]:
    return [{"s": np.array(row, dtype=dtype)} for row in rows]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("case", CASES)
def test_targets_are_masked_as_by_modalities(case, dtype, make_collate):
    collate = make_collate()
    samples = _samples(case["batch"], dtype)
    if "error" in case:
        with pytest.raises(UserError, match="do not alternate, begin mark first"):
            collate(samples)
        return
    batch = collate(samples)
    assert batch.targets["t"].tolist() == case["targets"]
    assert batch.targets["t"].dtype == torch.int64
    assert batch.samples["s"].tolist() == [row[:-1] for row in case["batch"]]


@pytest.mark.parametrize(
    ("row", "targets"),
    [
        ([2, 3, 5, 4, 6], [-100, 5, -100, -100]),
        ([1, 3, 1, 1, 1], [-100, 1, 1, 1]),  # an answer without an end is kept to the end
        ([1, 1, 1, 1, 1], [-100] * 4),
        ([2, 5, 6, 4, 7], [-100] * 4),  # starts inside an answer
        ([2, 3, 3, 5, 4], [-100] * 4),  # begins twice
        ([2, 3, 5, 6, 3], [-100] * 4),  # begins again in the last place: the mark must not be learnt
        ([2, 5, 6, 7, 3], [-100] * 4),  # begins in the last place only
        ([3, 5, 4, 3, 6], [-100] * 4),  # the begin mark is no target: starts inside an answer
    ],
)
def test_a_row_is_judged_by_itself_where_bad_rows_are_masked(row, targets, make_collate):
    collate = make_collate(on_bad_row="mask")
    good = [2, 3, 5, 6, 4]
    assert collate(_samples([row])).targets["t"].tolist() == [targets]
    assert collate(_samples([good, row])).targets["t"].tolist() == [[-100, 5, 6, -100], targets]


def test_rows_without_a_token_in_the_loss_are_counted_and_logged(make_collate, caplog):
    collate = make_collate(on_bad_row="mask")
    good, empty = [2, 3, 5, 6, 4], [1, 1, 1, 1, 1]
    with caplog.at_level(logging.WARNING):
        collate(_samples([good, good]))
        assert not caplog.records
        for _ in range(6):
            collate(_samples([good, empty, empty]))
    assert (collate.num_rows, collate.num_masked_rows) == (20, 12)
    assert [record.getMessage().split(" have")[0] for record in caplog.records] == [
        "2 of 5 rows so far",
        "10 of 17 rows so far",
    ]


def test_a_batch_without_one_of_the_marks_is_masked_with_a_warning(make_collate, caplog):
    make_collate()(_samples([[2, 5, 6, 4, 7]]))
    assert "has a mark of the begin in its targets 't'" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask_tokens": {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<b>"}}, "are the same token"),
        ({"mask_tokens": {"b_include_to_loss_token": "<x>", "e_include_to_loss_token": "<e>"}}, "'<x>' is not in the"),
        ({"target_keys_to_mask": []}, "target_keys_to_mask"),
        ({"on_bad_row": "drop"}, "on_bad_row"),
    ],
)
def test_settings_that_mask_nothing_or_everything_are_refused(changes, message, make_collate):
    with pytest.raises(ConfigError, match=message):
        make_collate(**changes)


def test_a_target_that_is_not_there_is_named(tokenizer):
    tokens = LossMaskingTokenConfig(b_include_to_loss_token="<b>", e_include_to_loss_token="<e>")
    collate = LossMaskingCollateFnWrapper(GPT2LLMCollateFn("s", "t"), ["labels"], IGNORED, tokens, tokenizer)
    with pytest.raises(BatchStateError, match=r"no target 'labels' \(there are: t\)"):
        collate(_samples([[2, BEGIN, 5, END]]))
