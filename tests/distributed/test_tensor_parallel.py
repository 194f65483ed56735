"""Tensor parallelism: a split model is the whole one, and what cannot be split is refused."""

import json
from pathlib import Path

import pytest
import tensor_parallel_steps
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.loading import load_app_state_
from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.distributed.tensor_parallel import get_gpt2_tensor_parallelized_model
from modalities_pipeline.exceptions import ConfigError, UserError
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.optim.optimizers import get_adam_w

SCRIPT = Path(tensor_parallel_steps.__file__)
LAYER = "transformer.h.0."


def _qk_norm(config: dict) -> dict:
    """RMS norms with a bias for queries and keys, whose heads have 32 features."""
    norm = {"norm_type": "rms_norm", "config": {"ndim": 32, "bias": True, "epsilon": 1e-5}}
    return {**config["attention_config"], "qk_norm_config": norm}


def _assert_equal(actual: dict, expected: dict, tolerance: float) -> None:
    """`actual` may be of the part of the batch of one data parallel rank."""
    assert all(torch.equal(tensor, expected["initial"][name]) for name, tensor in actual["initial"].items())
    for step, wanted in zip(actual["steps"], expected["steps"], strict=True):
        assert step["loss"] == pytest.approx(wanted["loss"], abs=tolerance)
        assert step["norm"] == pytest.approx(wanted["norm"], rel=10 * tolerance)
        assert step["gradients"].keys() == wanted["gradients"].keys()
        for name, gradient in wanted["gradients"].items():
            assert torch.allclose(step["gradients"][name], gradient, rtol=20 * tolerance, atol=tolerance), name
    for name, tensor in expected["final"].items():
        assert torch.allclose(actual["final"][name], tensor, rtol=0, atol=20 * tolerance), name


@pytest.mark.multi_process
def test_a_split_model_has_the_logits_gradients_and_steps_of_the_whole_one(make_gpt2_config, run_distributed, tmp_path):
    """W8: the gradients of norms of queries and keys are summed over the heads of all ranks, and weights stay equal.

    The initial weights are those of one process (B058), and the norm that clips is of the whole model (B052).
    """
    qk_norm, llama = make_gpt2_config(bias=True), make_gpt2_config(use_weight_tying=True)
    qk_norm["attention_config"] = _qk_norm(qk_norm)
    gpt2 = {"poe_type": "ABSOLUTE", "activation_type": "gelu", "attention_implementation": "manual", "bias": True}
    configs = [qk_norm, llama, make_gpt2_config(**gpt2, attention_config={"qkv_transforms": []})]
    runs: list[dict] = [{"config": config} for config in configs]
    runs += [{"config": config, "precision": "FP_32"} for config in configs[:2]]
    runs[-1]["folder"] = str(tmp_path / "checkpoint")
    run_distributed(SCRIPT, 2, str(tmp_path), json.dumps([*runs, {"config": qk_norm, "precision": "BF_16"}]))
    expected = [tensor_parallel_steps.train(config) for config in configs]
    for rank in range(2):
        *exact, rounded, other = torch.load(tmp_path / f"rank_{rank}.pt")
        assert "got different samples" in other["fault"]
        for result, wanted in zip(exact, [*expected, *expected[:2]], strict=True):
            _assert_equal(result, wanted, 2e-6)
            for step, wanted_step in zip(result["steps"], wanted["steps"], strict=True):
                assert torch.allclose(step["logits"], wanted_step["logits"], rtol=0, atol=4e-5)
        losses = [[step["loss"] for step in result["steps"]] for result in (rounded, expected[0])]
        assert losses[0] == pytest.approx(losses[1], abs=0.02)
        assert losses[0] != losses[1]
    _assert_read_by_one_process(tmp_path / "checkpoint", llama, exact[-1]["final"])


def _assert_read_by_one_process(folder: Path, config: dict, expected: dict) -> None:
    model = build_gpt2(**config)
    app_state = AppState(model, get_adam_w(1e-2, model, (0.9, 0.95), 1e-4, 0.1, ["embedding", "layernorm"]))
    load_app_state_(app_state, folder)
    assert all(torch.equal(parameter, expected[name]) for name, parameter in model.named_parameters())
    assert {state["step"].item() for state in app_state.optimizer.state.values()} == {3}


@pytest.mark.slow
@pytest.mark.multi_process
def test_it_goes_with_sharding_over_data_parallel_ranks(make_gpt2_config, run_distributed, tmp_path):
    """Two data parallel ranks of two tensor parallel ranks each."""
    config = make_gpt2_config(bias=True)
    config["attention_config"] = _qk_norm(config)
    run_distributed(SCRIPT, 4, str(tmp_path), json.dumps([{"config": config, "precision": "FP_32"}]))
    expected = tensor_parallel_steps.train(config)
    for rank in range(4):
        result, _ = torch.load(tmp_path / f"rank_{rank}.pt")
        _assert_equal(result, expected, 2e-6)


@pytest.fixture
def make_mesh():
    """Function degrees -> mesh of one of two ranks; there is no communication over it."""

    def make(**degrees: int) -> DeviceMesh:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        return get_device_mesh(-1, 2, "cpu", **degrees)

    yield make
    dist.destroy_process_group()


@pytest.fixture
def mesh(make_mesh):
    """A mesh of two tensor parallel ranks."""
    return make_mesh(tensor_parallel_degree=2)


def test_matrices_are_split_by_heads_and_features_and_gains_are_whole(mesh, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(bias=True))
    assert get_gpt2_tensor_parallelized_model(model, mesh) is model
    placements = {name: parameter.placements[0] for name, parameter in model.named_parameters()}
    whole = [name for name, placement in placements.items() if placement == Replicate()]
    assert {name.rpartition(".")[0] for name in whole if name.startswith(LAYER)} == {
        f"{LAYER}{name}" for name in ("attention_norm", "ffn_norm", "attn.c_proj", "mlp.W_2")
    }
    assert placements[f"{LAYER}attn.k_attn.weight"] == placements[f"{LAYER}mlp.V.bias"] == Shard(0)
    assert placements[f"{LAYER}attn.c_proj.weight"] == placements[f"{LAYER}mlp.W_2.weight"] == Shard(1)
    assert model.get_parameter(f"{LAYER}attn.k_attn.weight").to_local().shape == (32, 128)
    assert (model.transformer["h"]["0"].attn.n_head_q, model.transformer["h"]["0"].attn.n_head_kv) == (2, 1)


@pytest.mark.parametrize("missing", [("wte", "wpe", "drop"), ("lm_head_norm", "lm_head")])
def test_of_a_pipeline_each_stage_is_split_as_far_as_it_has_the_layers(missing, mesh, make_gpt2_config):
    models = [build_gpt2(**make_gpt2_config(n_layer=1)) for _ in range(2)]
    for name in missing:
        del models[0].transformer[name]
    for model in get_gpt2_tensor_parallelized_model(models, mesh):
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())


def test_tied_weights_stay_one_tensor(mesh, make_gpt2_config):
    model = get_gpt2_tensor_parallelized_model(build_gpt2(**make_gpt2_config(use_weight_tying=True)), mesh)
    assert model.get_parameter("transformer.wte.weight") is model.get_parameter("transformer.lm_head.weight")


def test_frozen_parameters_stay_frozen(mesh, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config()).requires_grad_(False)
    model = get_gpt2_tensor_parallelized_model(model, mesh)
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_head_q": 1, "n_head_kv": 1}, "n_head_q 1 of layer 0 is not a multiple of the 2 ranks"),
        ({"n_head_kv": 1}, "n_head_kv 1 of layer 0 is not a multiple of the 2 ranks"),
    ],
)
def test_a_model_that_cannot_be_split_evenly_is_refused_and_left_as_it_was(changes, message, mesh, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(attention_config={"qkv_transforms": []}, **changes))
    with pytest.raises(ConfigError, match=message):
        get_gpt2_tensor_parallelized_model(model, mesh)
    assert not any(isinstance(parameter, DTensor) for parameter in model.parameters())


def test_models_of_other_kinds_are_refused(mesh, make_gpt2_config):
    with pytest.raises(ConfigError, match=r"Linear has no layers transformer\.h"):
        get_gpt2_tensor_parallelized_model(nn.Linear(2, 2), mesh)
    model = build_gpt2(**make_gpt2_config(activation_type="gelu"))
    model.transformer["h"]["0"].mlp.c_fc = nn.Linear(128, 255)
    with pytest.raises(ConfigError, match="hidden dimension of the MLP of layer 0, 255, is not a multiple"):
        get_gpt2_tensor_parallelized_model(model, mesh)
    model.transformer["h"]["1"].mlp = nn.Linear(128, 128)
    with pytest.raises(ConfigError, match="the MLP of layer 1, Linear, is neither GELU nor SwiGLU"):
        get_gpt2_tensor_parallelized_model(model, mesh)


def test_it_comes_before_other_wrappers(mesh, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    model.transformer["h"]["0"] = nn.Sequential(model.transformer["h"]["0"])
    with pytest.raises(ConfigError, match="layer 0 is wrapped already; put gpt2_tp before"):
        get_gpt2_tensor_parallelized_model(model, mesh)
    model = get_gpt2_tensor_parallelized_model(build_gpt2(**make_gpt2_config()), mesh)
    with pytest.raises(ConfigError, match=r"sharded already\. Put gpt2_tp before fsdp2_wrapped"):
        get_gpt2_tensor_parallelized_model(model, mesh)


def test_a_fused_loss_needs_whole_matrices(mesh, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(fused_loss={"target_key": "target_ids"}))
    with pytest.raises(ConfigError, match="Set its fused_loss to null"):
        get_gpt2_tensor_parallelized_model(model, mesh)


def test_samples_that_cannot_be_split_evenly_are_refused(mesh, make_gpt2_config):
    model = get_gpt2_tensor_parallelized_model(build_gpt2(**make_gpt2_config()), mesh)
    with pytest.raises(UserError, match="got 7 tokens per sample, not a multiple of its 2 ranks"):
        model({"input_ids": torch.zeros(1, 7, dtype=torch.int64)})


def test_a_mesh_without_the_dimension_or_with_replicas_is_refused(make_mesh, make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    with pytest.raises(ConfigError, match="no dimension tp"):
        get_gpt2_tensor_parallelized_model(model, make_mesh())
    dist.destroy_process_group()
    with pytest.raises(ConfigError, match="has a dimension dp_replicate"):
        get_gpt2_tensor_parallelized_model(model, make_mesh(data_parallel_replicate_degree=2))
