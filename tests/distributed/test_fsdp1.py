"""FSDP1: a sharded run is the plain one, also over a checkpoint, and what cannot be is refused."""

import json
from pathlib import Path

import fsdp1_steps
import pytest
import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from modalities_pipeline.checkpointing.torch_loading import TorchCheckpointLoading
from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy
from modalities_pipeline.distributed.fsdp1 import get_fsdp1_wrapped_model
from modalities_pipeline.exceptions import ConfigError, ModelStateError, RunningEnvError
from modalities_pipeline.models.gpt2 import build_gpt2

SCRIPT = Path(fsdp1_steps.__file__)
PLAIN, FULL = MixedPrecisionSettings.NO_MIXED_PRECISION, ShardingStrategy.FULL_SHARD

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*NO_SHARD"),
    pytest.mark.filterwarnings("ignore:FSDP.state_dict_type"),
]


def _assert_equal(actual: dict, expected: dict, tolerance: float) -> None:
    assert actual["losses"] == pytest.approx(expected["losses"], abs=tolerance)
    for state in ("saved", "final"):
        assert actual[state].keys() == expected[state].keys()
        for name, tensor in expected[state].items():
            assert torch.allclose(actual[state][name], tensor, rtol=0, atol=20 * tolerance), name


@pytest.mark.multi_process
def test_sharded_training_equals_that_of_the_plain_model_also_over_a_checkpoint(
    make_gpt2_config, run_distributed, tmp_path
):
    """Ranks start with the weights of rank 0; after two of three steps the run is saved and loaded.

    W27: what rank 0 cannot read ends all ranks.
    """
    config = make_gpt2_config(use_weight_tying=True)
    runs = [
        {"config": config, "strategy": "FULL_SHARD", "folder": str(tmp_path / "checkpoints")},
        {"config": config, "strategy": "SHARD_GRAD_OP"},
        {"config": config, "strategy": "NO_SHARD", "folder": str(tmp_path / "others")},
        {"config": config, "strategy": "FULL_SHARD", "precision": "MIXED_PRECISION_MEGATRON"},
    ]
    run_distributed(SCRIPT, 2, str(tmp_path), json.dumps(runs))
    expected = fsdp1_steps.train(config, strategy=None)
    for rank in range(2):
        *exact, rounded, refused = torch.load(tmp_path / f"rank_{rank}.pt")
        assert refused["fault"] == "There is no checkpoint nowhere."
        for result in exact:
            _assert_equal(result, expected, 2e-6)
        _assert_equal(rounded, expected, 5e-3)
        assert rounded["losses"] != expected["losses"]
    _assert_readable_by_one_process(tmp_path / "checkpoints", config, exact[0])


def _assert_readable_by_one_process(folder: Path, config: dict, result: dict) -> None:
    name = "seen_steps_2-seen_tokens_128-target_steps_3-target_tokens_192.bin"
    files = [folder / f"eid_x-model-{name}", folder / f"eid_x-optimizer-{name}"]
    assert sorted(folder.iterdir()) == [*files, folder / "last_checkpoint_info.json"]
    loading = TorchCheckpointLoading("cpu")
    model = loading.load_model_checkpoint(build_gpt2(**config), files[0])
    assert all(torch.equal(tensor, result["saved"][name]) for name, tensor in model.state_dict().items())
    optimizer = fsdp1_steps.make_optimizer(model)
    loading.load_optimizer_checkpoint_(optimizer, model, files[1])
    assert {state["step"].item() for state in optimizer.state.values()} == {2}
    fsdp1_steps._step(model, optimizer, step=2)
    for name, tensor in model.state_dict().items():
        assert torch.allclose(tensor, result["final"][name], rtol=0, atol=4e-5), name


@pytest.mark.parametrize("precision", ["FP_32", "BF_16", "BF_16_WORKING"])
def test_one_process_trains_and_goes_on_from_its_checkpoint(precision, make_gpt2_config, process_group, tmp_path):
    """bfloat16 is no matter of CUDA (W28); weights and what the optimizer changes stay float32."""
    config = make_gpt2_config(n_layer=1)
    expected = fsdp1_steps.train(config, strategy=None)
    result = fsdp1_steps.train(config, "FULL_SHARD", precision, str(tmp_path))
    _assert_equal(result, expected, 2e-6 if precision == "FP_32" else 5e-3)
    assert {tensor.dtype for tensor in result["final"].values()} == {torch.float32}


def test_the_named_modules_are_units_and_parameters_keep_their_names(make_gpt2_config, process_group):
    model = build_gpt2(**make_gpt2_config())
    names = list(dict(model.named_parameters()))
    wrapped = get_fsdp1_wrapped_model(model, True, PLAIN, FULL, ["GPT2Block"])
    units = [name for name, module in wrapped.named_modules() if isinstance(module, FullyShardedDataParallel)]
    assert [name.rpartition(".")[2] for name in units] == ["", "0", "1"]
    assert [name.replace("_fsdp_wrapped_module.", "") for name, _ in wrapped.named_parameters()] == names


def test_an_unknown_block_name_is_refused_and_the_known_ones_listed(make_gpt2_config, process_group):
    model = build_gpt2(**make_gpt2_config())
    with pytest.raises(ConfigError, match=r"fsdp1_wrapped: the model has no GPTBlock\. It has: .*GPT2Block"):
        get_fsdp1_wrapped_model(model, True, PLAIN, FULL, ["GPTBlock"])


def test_a_model_without_memory_is_refused(make_gpt2_config, process_group):
    model = build_gpt2(**make_gpt2_config(use_meta_device=True))
    with pytest.raises(ModelStateError, match="on the meta device"):
        get_fsdp1_wrapped_model(model, True, PLAIN, FULL, ["GPT2Block"])


@pytest.mark.parametrize("strategy", [ShardingStrategy.HYBRID_SHARD, ShardingStrategy.HYBRID_SHARD_ZERO2])
def test_hybrid_strategies_are_refused_on_the_cpu(strategy, make_gpt2_config, process_group, monkeypatch):
    monkeypatch.setenv("MODALITIES_PIPELINE_DEVICE", "cpu")
    with pytest.raises(ConfigError, match=f"{strategy.name} is one of GPUs"):
        get_fsdp1_wrapped_model(build_gpt2(**make_gpt2_config()), True, PLAIN, strategy, ["GPT2Block"])


def test_without_a_process_group_there_is_nothing_to_shard_over(make_gpt2_config):
    with pytest.raises(RunningEnvError, match="needs a process group"):
        get_fsdp1_wrapped_model(build_gpt2(**make_gpt2_config()), True, PLAIN, FULL, ["GPT2Block"])
