"""Losses: values, masking, and sums that add up over parts."""

import json
from pathlib import Path

import pytest
import torch

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.exceptions import BatchStateError
from modalities_pipeline.loss_functions import IGNORE_INDEX, CLMCrossEntropyLoss, NCELoss

VECTORS = json.loads((Path(__file__).parent / "vectors" / "losses.json").read_text("utf-8"))
LOGITS, TARGETS = torch.tensor(VECTORS["logits"]), torch.tensor(VECTORS["targets"])
LOSS = CLMCrossEntropyLoss(target_key="target", prediction_key="logits")


def _batch(logits: torch.Tensor = LOGITS, targets: torch.Tensor = TARGETS) -> InferenceResultBatch:
    return InferenceResultBatch(targets={"target": targets}, predictions={"logits": logits})


def test_cross_entropy_matches_modalities():
    assert LOSS(_batch()).item() == pytest.approx(VECTORS["ce_with_ignore"], abs=2e-6)
    assert LOSS.tag == VECTORS["tag"]


def test_cross_entropy_of_bfloat16_logits_is_computed_in_float32():
    loss = LOSS(_batch(LOGITS.to(torch.bfloat16)))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(VECTORS["ce_bf16_logits"], abs=0.02)
    assert loss.item() == LOSS(_batch(LOGITS.to(torch.bfloat16).float())).item()


def test_all_ways_to_call_give_the_same():
    expected = LOSS(_batch())
    for actual in (
        LOSS(forward_batch=_batch()),
        LOSS(LOGITS, TARGETS),
        LOSS(LOGITS, targets=TARGETS),
        LOSS(outputs=LOGITS, targets=TARGETS),
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
    """Parts with unequal numbers of valid targets must not be averaged by their means (B048)."""
    targets = TARGETS.clone()
    targets[0, :3] = IGNORE_INDEX
    parts = [LOSS.sum_and_count(_batch(LOGITS[i : i + 1], targets[i : i + 1])) for i in range(len(LOGITS))]
    total, count = sum(part[0] for part in parts), sum(part[1] for part in parts)
    assert count.item() == (targets != IGNORE_INDEX).sum().item()
    assert (total / count).item() == pytest.approx(LOSS(_batch(targets=targets)).item(), abs=1e-6)
    mean_of_means = sum(LOSS(_batch(LOGITS[i : i + 1], targets[i : i + 1])) for i in range(len(LOGITS))) / len(LOGITS)
    assert abs(mean_of_means.item() - (total / count).item()) > 1e-4


def test_a_batch_without_a_valid_target_adds_nothing():
    logits = LOGITS.clone().requires_grad_()
    batch = _batch(logits, torch.full_like(TARGETS, IGNORE_INDEX))
    loss, count = LOSS.sum_and_count(batch)
    assert (loss.item(), count.item(), LOSS(batch).item()) == (0.0, 0, 0.0)
    loss.backward()
    assert torch.all(logits.grad == 0)


@pytest.mark.parametrize("extra_dimension", [False, True])
@pytest.mark.parametrize(
    ("key", "is_asymmetric", "temperature"),
    [("asym_t1", True, 1.0), ("sym_t1", False, 1.0), ("asym_t007", True, 0.07), ("sym_t007", False, 0.07)],
)
def test_noise_contrastive_loss_matches_modalities(key, is_asymmetric, temperature, extra_dimension):
    """Embeddings of shape (batch, 1, width), as cls tokens have, work as well."""
    e1, e2 = (torch.tensor(VECTORS["nce"][name]) for name in ("e1", "e2"))
    if extra_dimension:
        e1, e2 = e1.unsqueeze(1), e2.unsqueeze(1)
    batch = InferenceResultBatch(targets={}, predictions={"a": e1, "b": e2})
    loss = NCELoss("a", "b", is_asymmetric=is_asymmetric, temperature=temperature)
    assert loss(batch).item() == pytest.approx(VECTORS["nce"][key], abs=2e-6)
    assert loss.sum_and_count(batch)[1].item() == 1
