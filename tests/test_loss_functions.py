"""Losses: values, masking, and sums that add up over parts."""

import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.config.interfaces import LOSS as LOSS_INTERFACE
from modalities_pipeline.config.interfaces import MODULE
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.exceptions import BatchStateError
from modalities_pipeline.loss_functions import IGNORE_INDEX, CLMCrossEntropyLoss, NCELoss, WeightedSumLoss
from modalities_pipeline.optim.loss_configs import NCELossConfig, WeightedSumLossConfig

VECTORS = json.loads((Path(__file__).parent / "vectors" / "losses.json").read_text("utf-8"))
LOGITS, TARGETS = torch.tensor(VECTORS["logits"]), torch.tensor(VECTORS["targets"])
LOSS = CLMCrossEntropyLoss(target_key="target", prediction_key="logits")
ROUNDING_LOSS = CLMCrossEntropyLoss(target_key="target", prediction_key="logits", computes_in_fp32=False)
ASYMMETRIC = NCELoss("a", "b")


def _batch(logits: torch.Tensor = LOGITS, targets: torch.Tensor = TARGETS) -> InferenceResultBatch:
    return InferenceResultBatch(targets={"target": targets}, predictions={"logits": logits})


def test_cross_entropy_matches_modalities():
    assert LOSS(_batch()).item() == pytest.approx(VECTORS["ce_with_ignore"], abs=2e-6)
    assert LOSS.tag == VECTORS["tag"]


def test_cross_entropy_of_bfloat16_logits_is_computed_in_float32():
    """Not in bfloat16, where it moves in steps of 0.03 (W4)."""
    loss = LOSS(_batch(LOGITS.to(torch.bfloat16)))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(VECTORS["ce_bf16_logits"], abs=0.02)
    assert loss.item() == LOSS(_batch(LOGITS.to(torch.bfloat16).float())).item()


def test_a_loss_in_the_dtype_of_the_logits_has_the_number_of_modalities():
    batch = _batch(LOGITS.to(torch.bfloat16))
    loss = ROUNDING_LOSS(batch)
    assert (loss.item(), str(loss.dtype)) == (VECTORS["ce_bf16_logits"], VECTORS["ce_bf16_dtype"])
    assert torch.equal(ROUNDING_LOSS(LOGITS.to(torch.bfloat16), TARGETS), loss)
    loss_sum, count = ROUNDING_LOSS.sum_and_count(batch)
    assert loss_sum.dtype == torch.float32
    assert (loss_sum / count).item() == pytest.approx(VECTORS["ce_bf16_logits"], rel=1e-6)
    assert ROUNDING_LOSS(_batch()).item() == pytest.approx(VECTORS["ce_with_ignore"], abs=2e-6)


def test_all_ways_to_call_give_the_same():
    expected = LOSS(_batch())
    for actual in (
        LOSS(forward_batch=_batch()),
        LOSS(LOGITS, TARGETS),
        LOSS(LOGITS, targets=TARGETS),
        LOSS(outputs=LOGITS, targets=TARGETS),
        LOSS(targets=TARGETS, outputs=LOGITS),
    ):
        assert torch.equal(actual, expected)


def test_other_ways_to_call_are_refused():
    with pytest.raises(TypeError, match="takes an InferenceResultBatch, or outputs and targets"):
        LOSS(LOGITS)
    with pytest.raises(TypeError, match="takes an InferenceResultBatch, or outputs and targets"):
        LOSS(LOGITS, target=TARGETS)


def test_a_missing_key_is_named():
    with pytest.raises(BatchStateError, match="logits"):
        LOSS(InferenceResultBatch(targets={"target": TARGETS}, predictions={"other": LOGITS}))


def test_sums_and_counts_of_parts_make_the_mean_of_the_whole():
    """Parts with unequal numbers of valid targets must not be averaged by their means (B048, W19)."""
    targets = TARGETS.clone()
    targets[0, :3] = IGNORE_INDEX
    parts = [LOSS.sum_and_count(_batch(LOGITS[i : i + 1], targets[i : i + 1])) for i in range(len(LOGITS))]
    total, count = sum(part[0] for part in parts), sum(part[1] for part in parts)
    assert count.item() == (targets != IGNORE_INDEX).sum().item()
    assert (total / count).item() == pytest.approx(LOSS(_batch(targets=targets)).item(), abs=1e-6)
    mean_of_means = sum(LOSS(_batch(LOGITS[i : i + 1], targets[i : i + 1])) for i in range(len(LOGITS))) / len(LOGITS)
    assert abs(mean_of_means.item() - (total / count).item()) > 1e-4


@pytest.mark.parametrize("loss_function", [LOSS, ROUNDING_LOSS])
def test_a_batch_without_a_valid_target_adds_nothing(loss_function):
    """It is not a number in Modalities (W19)."""
    logits = LOGITS.clone().requires_grad_()
    batch = _batch(logits, torch.full_like(TARGETS, IGNORE_INDEX))
    loss, count = loss_function.sum_and_count(batch)
    assert (loss.item(), count.item(), loss_function(batch).item()) == (0.0, 0, 0.0)
    loss.backward()
    assert torch.all(logits.grad == 0)


@pytest.mark.parametrize("extra_dimension", [False, True])
@pytest.mark.parametrize(
    ("key", "is_asymmetric", "temperature"),
    [("asym_t1", True, 1.0), ("sym_t1", False, 1.0), ("asym_t007", True, 0.07), ("sym_t007", False, 0.07)],
)
def test_noise_contrastive_loss_matches_modalities(key, is_asymmetric, temperature, extra_dimension):
    """Embeddings of shape (batch, 1, width), as cls tokens have, work as well (W21)."""
    e1, e2 = (torch.tensor(VECTORS["nce"][name]) for name in ("e1", "e2"))
    if extra_dimension:
        e1, e2 = e1.unsqueeze(1), e2.unsqueeze(1)
    batch = InferenceResultBatch(targets={}, predictions={"a": e1, "b": e2})
    loss = NCELoss("a", "b", is_asymmetric=is_asymmetric, temperature=temperature)
    assert loss(batch).item() == pytest.approx(VECTORS["nce"][key], abs=2e-6)
    assert loss.tag == VECTORS["nce"]["tag"]


def _pairs(num_rows: int, dtype: torch.dtype = torch.float32) -> InferenceResultBatch:
    embeddings = torch.randn(2, num_rows, 8, generator=torch.Generator().manual_seed(num_rows)).to(dtype)
    return InferenceResultBatch(targets={}, predictions={"a": embeddings[0], "b": embeddings[1]})


def test_rows_are_the_terms_of_the_noise_contrastive_loss():
    """An evaluation's last, smaller batch counts for as much as it has rows (W19)."""
    loss_sum, count = ASYMMETRIC.sum_and_count(_pairs(3))
    assert count.item() == 3
    assert loss_sum.item() == pytest.approx(3 * ASYMMETRIC(_pairs(3)).item(), rel=1e-6)


def test_the_noise_contrastive_loss_of_bfloat16_is_computed_in_float32():
    rounded = _pairs(4, torch.bfloat16)
    expected = ASYMMETRIC(
        InferenceResultBatch(targets={}, predictions={key: value.float() for key, value in rounded.predictions.items()})
    )
    assert torch.equal(ASYMMETRIC(rounded), expected)


@pytest.mark.parametrize("temperature", [0, -1, float("inf"), True])
def test_temperatures_that_are_not_positive_numbers_are_refused(temperature):
    with pytest.raises(ValidationError, match="temperature"):
        NCELossConfig(prediction_key1="a", prediction_key2="b", temperature=temperature)


def _captioned_pairs() -> InferenceResultBatch:
    return InferenceResultBatch(targets={"target": TARGETS}, predictions={"logits": LOGITS, **_pairs(4).predictions})


def test_a_weighted_sum_counts_terms_as_its_first_loss_does():
    loss, batch = WeightedSumLoss([LOSS, ASYMMETRIC], [2.0, 0.5], tag="both"), _captioned_pairs()
    expected = 2.0 * LOSS(batch).item() + 0.5 * ASYMMETRIC(batch).item()
    loss_sum, count = loss.sum_and_count(batch)
    assert loss(batch).item() == pytest.approx(expected, rel=1e-6)
    assert count.item() == LOSS.sum_and_count(batch)[1].item()
    assert (loss_sum / count).item() == pytest.approx(expected, rel=1e-6)
    assert (loss.tag, WeightedSumLoss([LOSS], [1.0]).tag) == ("both", "WeightedSumLoss")


def test_a_weighted_sum_of_one_loss_is_that_loss():
    parts = WeightedSumLoss([LOSS], [1.0]).sum_and_count(_batch())
    for actual, expected in zip(parts, LOSS.sum_and_count(_batch()), strict=True):
        assert actual.item() == pytest.approx(expected.item(), rel=1e-6)


def test_gradients_of_a_weighted_sum_reach_all_predictions():
    batch = _captioned_pairs()
    for tensor in batch.predictions.values():
        tensor.requires_grad_()
    loss_sum, _ = WeightedSumLoss([LOSS, NCELoss("a", "b", is_asymmetric=False)], [1.0, 1.0]).sum_and_count(batch)
    loss_sum.backward()
    assert all(tensor.grad.any() for tensor in batch.predictions.values())


@pytest.mark.parametrize(
    ("losses", "weights", "message"),
    [
        (2, [1.0], "has 1 numbers for 2 losses"),
        (1, [0.0], "one of them must not be 0"),
        (1, [float("nan")], "finite number"),
        (0, [], "at least 1 item"),
    ],
)
def test_weights_that_do_not_fit_the_losses_are_refused(losses, weights, message):
    losses = [Unbuilt("loss", "clm_cross_entropy_loss", LOSS_INTERFACE)] * losses
    with pytest.raises(ValidationError, match=message):
        WeightedSumLossConfig(losses=losses, weights=weights)


def test_a_sum_of_something_else_than_losses_is_refused():
    with pytest.raises(ValidationError, match="has to be a Loss"):
        WeightedSumLossConfig(losses=[Unbuilt("model", "gpt2", MODULE)], weights=[1.0])
