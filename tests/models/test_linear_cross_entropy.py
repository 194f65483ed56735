"""The memory-lean loss: the value and the gradients of head and cross entropy one after the other."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.loss_functions import IGNORE_INDEX, CLMCrossEntropyLoss
from modalities_pipeline.models.gpt2 import GPT2LLM, build_gpt2
from modalities_pipeline.models.linear_cross_entropy import linear_cross_entropy
from modalities_pipeline.models.model import model_predict_batch

LOSS = CLMCrossEntropyLoss(target_key="target_ids", prediction_key="logits")
FUSED = {"target_key": "target_ids", "num_tokens_per_chunk": 7}  # 7 does not divide the number of tokens


def _inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 10, 16, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(40, 16, generator=generator).to(dtype).requires_grad_()
    targets = torch.randint(40, (2, 10), generator=generator)
    targets[0, 3:6] = IGNORE_INDEX
    return hidden, weight, targets


def _plain(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = functional.linear(hidden, weight).float()
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


@pytest.mark.parametrize("num_tokens_per_chunk", [1, 7, 20, 1000])
def test_value_and_gradients_are_those_of_the_plain_path(num_tokens_per_chunk):
    hidden, weight, targets = _inputs()
    expected = _plain(hidden, weight, targets)
    expected_gradients = torch.autograd.grad(0.5 * expected, [hidden, weight])
    actual, count = linear_cross_entropy(hidden, weight, targets, num_tokens_per_chunk)
    gradients = torch.autograd.grad(0.5 * actual, [hidden, weight])
    assert actual.item() == pytest.approx(expected.item(), rel=1e-6)
    assert (actual.dtype, count.dtype, count.item()) == (torch.float32, torch.int64, 17)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        assert torch.allclose(gradient, wanted, rtol=1e-5, atol=1e-6)


def test_in_bfloat16_all_after_the_logits_is_float32():
    hidden, weight, targets = _inputs(torch.bfloat16)
    expected = _plain(hidden, weight, targets)
    expected_gradients = torch.autograd.grad(expected, [hidden, weight])
    actual, _ = linear_cross_entropy(hidden, weight, targets, 7)
    gradients = torch.autograd.grad(actual, [hidden, weight])
    assert actual.item() == pytest.approx(expected.item(), rel=1e-6)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        assert gradient.dtype == torch.bfloat16
        assert torch.allclose(gradient.float(), wanted.float(), rtol=0.02, atol=0.02)


def test_under_autocast_the_logits_have_its_dtype():
    hidden, weight, targets = _inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = _plain(hidden, weight, targets)
        actual, _ = linear_cross_entropy(hidden, weight, targets, 7)
    (gradient,) = torch.autograd.grad(actual, [weight])
    assert actual.item() == pytest.approx(expected.item(), rel=1e-6)
    assert actual.item() != pytest.approx(_plain(hidden, weight, targets).item(), rel=1e-6)
    assert gradient.dtype == torch.float32


def test_targets_that_do_not_count_have_loss_and_gradient_zero():
    hidden, weight, targets = _inputs()
    loss_sum, count = linear_cross_entropy(hidden, weight, torch.full_like(targets, IGNORE_INDEX), 7)
    loss_sum.backward()
    assert (loss_sum.item(), count.item()) == (0.0, 0)
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_large_logits_do_not_overflow():
    hidden, weight, targets = _inputs()
    actual, _ = linear_cross_entropy(1e4 * hidden, weight, targets, 7)
    assert actual.item() == pytest.approx(_plain(1e4 * hidden, weight, targets).item(), rel=1e-6)


class _Shapes(TorchDispatchMode):
    """Keeps the shapes of all tensors that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.shapes.append(tuple(result.shape))
        return result


def test_memory_for_logits_is_that_of_a_chunk():
    hidden, weight, targets = _inputs()
    with _Shapes() as made:
        loss_sum, _ = linear_cross_entropy(hidden, weight, targets, 7)
        loss_sum.backward()
    rows = {shape[0] for shape in made.shapes if shape[1:] == (40,)} - {16}  # 16: the weights, transposed
    assert rows == {7, 6}
    assert tuple(weight.shape) in made.shapes


def test_without_gradients_none_are_made():
    hidden, weight, targets = _inputs()
    with torch.no_grad(), _Shapes() as made:
        loss_sum, _ = linear_cross_entropy(hidden, weight, targets, 7)
    assert not loss_sum.requires_grad
    assert loss_sum.item() == pytest.approx(_plain(hidden, weight, targets).item(), rel=1e-6)
    assert tuple(weight.shape) not in made.shapes


def _models(make_gpt2_config, **changes) -> tuple[GPT2LLM, GPT2LLM]:
    """A model without and one with a fused loss, of the same weights."""
    plain = build_gpt2(**make_gpt2_config(**changes))
    fused = build_gpt2(**make_gpt2_config(**changes, fused_loss=FUSED))
    fused.load_state_dict(plain.state_dict())
    return plain, fused


def _batch() -> DatasetBatch:
    generator = torch.Generator().manual_seed(1)
    ids, targets = torch.randint(128, (2, 2, 9), generator=generator)
    targets[1, 5:] = IGNORE_INDEX
    return DatasetBatch(samples={"input_ids": ids}, targets={"target_ids": targets})


def _loss_and_gradients(model: nn.Module, scale: float = 1.0) -> tuple[float, dict[str, torch.Tensor]]:
    loss_sum, count = LOSS.sum_and_count(model_predict_batch(model, _batch()))
    (scale * loss_sum).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return (loss_sum / count).item(), {
        name: gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        for name, gradient in gradients.items()
    }


@pytest.mark.parametrize("use_weight_tying", [False, True])
def test_a_model_with_fused_loss_trains_like_one_without(use_weight_tying, make_gpt2_config):
    plain, fused = _models(make_gpt2_config, use_weight_tying=use_weight_tying)
    expected, expected_gradients = _loss_and_gradients(plain)
    actual, gradients = _loss_and_gradients(fused)
    assert actual == pytest.approx(expected, abs=1e-6)
    assert LOSS(model_predict_batch(fused, _batch())).item() == pytest.approx(expected, abs=1e-6)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected_gradients[name], rtol=1e-4, atol=1e-6), name


def test_gradients_are_accumulated_over_micro_batches(make_gpt2_config):
    _, fused = _models(make_gpt2_config)
    _, once = _loss_and_gradients(fused)
    once = {name: gradient.clone() for name, gradient in once.items()}
    _, twice = _loss_and_gradients(fused, scale=0.5)
    for name, gradient in twice.items():
        assert torch.allclose(gradient, 1.5 * once[name], rtol=1e-5, atol=1e-7), name


def test_a_model_with_fused_loss_makes_no_logits(make_gpt2_config):
    _, fused = _models(make_gpt2_config)
    predictions = model_predict_batch(fused, _batch()).predictions
    shapes_and_dtypes = {name: (tensor.dim(), tensor.dtype) for name, tensor in predictions.items()}
    assert shapes_and_dtypes == {"logits_loss_sum": (0, torch.float32), "logits_loss_count": (0, torch.int64)}


def test_without_targets_a_model_with_fused_loss_gives_logits(make_gpt2_config):
    plain, fused = _models(make_gpt2_config)
    ids = _batch().samples["input_ids"]
    assert torch.equal(fused({"input_ids": ids})["logits"], plain({"input_ids": ids})["logits"])
    assert torch.equal(fused(ids), plain(ids))
    assert (plain.fused_loss_target_key, fused.fused_loss_target_key) == (None, "target_ids")


def test_names_of_parameters_are_those_without_fused_loss(make_gpt2_config):
    plain, fused = _models(make_gpt2_config)
    assert list(plain.state_dict()) == list(fused.state_dict())


def test_an_evaluation_has_the_same_loss(make_gpt2_config):
    plain, fused = _models(make_gpt2_config)
    with torch.no_grad():
        expected, actual = (LOSS(model_predict_batch(model.eval(), _batch())) for model in (plain, fused))
    assert actual.item() == pytest.approx(expected.item(), abs=1e-6)
    assert len(model_predict_batch(fused, _batch())) == 2


def test_a_loss_in_the_dtype_of_the_logits_contradicts_a_fused_one(make_gpt2_config):
    _, fused = _models(make_gpt2_config)
    loss = CLMCrossEntropyLoss("target_ids", "logits", computes_in_fp32=False)
    with pytest.raises(ConfigError, match="computes_in_fp32 is false, but the model's fused_loss"):
        loss(model_predict_batch(fused, _batch()))


@pytest.mark.parametrize("shards_the_head", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sharded_model_has_the_same_loss_and_gradients(dtype, shards_the_head, process_group, make_gpt2_config):
    plain, fused = _models(make_gpt2_config)
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for model in (plain, fused):
        for block in model.transformer["h"].children():
            fully_shard(block, mesh=mesh, mp_policy=policy)
        if shards_the_head:
            fully_shard(model.transformer["lm_head"], mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    expected, expected_gradients = _loss_and_gradients(plain)
    actual, gradients = _loss_and_gradients(fused)
    assert actual == pytest.approx(expected, abs=1e-6)
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    for name, gradient in gradients.items():
        error = (gradient - expected_gradients[name]).norm() / expected_gradients[name].norm()
        assert error < tolerance, name


@pytest.mark.filterwarnings("ignore:FSDP is switching")
@pytest.mark.parametrize("use_weight_tying", [False, True])
def test_a_model_sharded_by_fsdp1_has_the_same_loss_and_gradients(use_weight_tying, process_group, make_gpt2_config):
    models = _models(make_gpt2_config, use_weight_tying=use_weight_tying)
    device = torch.device("cpu")
    plain, fused = (FullyShardedDataParallel(model, device_id=device, use_orig_params=True) for model in models)
    expected, expected_gradients = _loss_and_gradients(plain)
    actual, gradients = _loss_and_gradients(fused)
    assert actual == pytest.approx(expected, abs=1e-6)
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected_gradients[name], rtol=1e-4, atol=1e-6), name


def test_activation_checkpointing_changes_nothing(make_gpt2_config):
    plain, fused = _models(make_gpt2_config)
    expected, expected_gradients = _loss_and_gradients(plain)
    blocks = fused.transformer["h"]
    for name, block in blocks.items():
        blocks[name] = checkpoint_wrapper(block)
    actual, gradients = _loss_and_gradients(fused)
    assert actual == pytest.approx(expected, abs=1e-6)
    for gradient, wanted in zip(gradients.values(), expected_gradients.values(), strict=True):
        assert torch.allclose(gradient, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.multi_process
def test_two_ranks_train_with_fused_loss_like_one_without(run_distributed, make_gpt2_config):
    """With accumulation, and targets that count spread unevenly over micro batches and ranks (B048)."""
    run_distributed(Path(__file__).with_name("fused_loss_on_ranks.py"), 2, json.dumps(make_gpt2_config()))
