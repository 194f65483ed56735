"""Weights of any kind of checkpoint in a plain model: which are taken, in which dtype, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file, save_model
from torch import nn

from modalities_pipeline.checkpointing.torch_loading import TorchCheckpointLoading, get_checkpointed_model
from modalities_pipeline.exceptions import CheckpointingError, ConfigError
from modalities_pipeline.models.gpt2 import GPT2LLM, build_gpt2

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

HEAD, EMBEDDING = "transformer.lm_head.weight", "transformer.wte.weight"


@pytest.fixture
def make_model(make_gpt2_config: Callable[..., dict[str, Any]], fill: Callable[[nn.Module], None]) -> Any:
    """Function changes -> a tiny model with numbers that its names decide."""

    def make(**changes: Any) -> GPT2LLM:
        model = build_gpt2(**make_gpt2_config(**{"n_layer": 1, **changes}))
        fill(model)
        return model

    return make


def _save(model: nn.Module, path: Path) -> Path:
    state = model.state_dict()
    if path.suffix == ".safetensors":
        save_file(state, path)
    elif path.suffix == ".pt":
        torch.save({"app": {"model": state, "optimizer": {"lr": 1.0}}}, path)
    elif path.suffix == ".bin":
        torch.save(state, path)
    else:
        dcp.save({"app": {"model": state, "optimizer": {"step": 1}}}, checkpoint_id=path, no_dist=True)
    return path


def _load(path: Path, model: nn.Module, precision: str | None = None) -> nn.Module:
    return get_checkpointed_model(TorchCheckpointLoading("cpu", precision), path, model)


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "model.safetensors", "eid_a-seen_steps_1"])
@pytest.mark.parametrize("on_meta_device", [False, True])
def test_weights_are_those_of_the_checkpoint_whatever_its_kind(
    name, on_meta_device, make_model, tmp_path, make_gpt2_config
):
    saved = make_model()
    empty = build_gpt2(**make_gpt2_config(n_layer=1, use_meta_device=on_meta_device))
    loaded = _load(_save(saved, tmp_path / name), empty)
    assert loaded.state_dict().keys() == saved.state_dict().keys()
    for key, tensor in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor), key
    ids = torch.arange(12).view(1, 12)
    assert torch.equal(loaded.eval()(ids), saved.eval()(ids))


@pytest.mark.parametrize(("precision", "expected"), [(None, torch.bfloat16), ("FP32", torch.float32)])
def test_the_dtype_is_the_stored_one_unless_another_is_asked_for(precision, expected, make_model, tmp_path, caplog):
    saved = make_model().to(torch.bfloat16)
    path = _save(saved, tmp_path / "model.bin")
    loaded = _load(path, make_model(), precision)
    assert {parameter.dtype for parameter in loaded.parameters()} == {expected}
    assert torch.equal(loaded.get_parameter(HEAD), saved.get_parameter(HEAD).to(expected))
    assert ("become torch.float32" in caplog.text) == (precision is not None)


def test_half_precision_leaves_the_rotary_frequencies_alone(make_model, tmp_path):
    model = _load(_save(make_model(), tmp_path / "model.bin"), make_model(), "BF16")
    assert model.get_parameter(HEAD).dtype == torch.bfloat16
    assert {buffer.dtype for buffer in model.buffers()} == {torch.float32}
    assert model(torch.arange(8).view(1, 8)).dtype == torch.bfloat16


@pytest.mark.parametrize("on_meta_device", [False, True])
def test_tied_weights_stay_tied_even_if_the_file_has_one_of_their_names_only(
    on_meta_device, make_model, tmp_path, make_gpt2_config
):
    saved = make_model(use_weight_tying=True)
    save_model(saved, tmp_path / "model.safetensors")
    config = make_gpt2_config(n_layer=1, use_weight_tying=True, use_meta_device=on_meta_device)
    loaded = _load(tmp_path / "model.safetensors", build_gpt2(**config))
    assert loaded.get_parameter(HEAD) is loaded.get_parameter(EMBEDDING)
    assert torch.equal(loaded.get_parameter(HEAD), saved.get_parameter(HEAD))


def test_a_checkpoint_whose_tied_weights_differ_is_refused(make_model, tmp_path):
    """See B067: either copy would be the wrong one."""
    path = _save(make_model(use_weight_tying=False), tmp_path / "model.bin")
    with pytest.raises(CheckpointingError, match="one tensor in the model and differ there"):
        _load(path, make_model(use_weight_tying=True))


@pytest.mark.parametrize("name", ["model.bin", "folder"])
def test_a_checkpoint_of_another_model_is_refused_with_all_differences(name, make_model, tmp_path):
    """See B064."""
    path = _save(make_model(n_layer=2, n_head_kv=4), tmp_path / name)
    with pytest.raises(CheckpointingError) as caught:
        _load(path, make_model(bias=True))
    message = str(caught.value)
    assert "it lacks transformer.h.0.attn.c_proj.bias" in message
    assert "the model lacks transformer.h.1.attention_norm.weight" in message
    assert "transformer.h.0.attn.k_attn.weight is (128, 128) there and (64, 128) in the model" in message


class _Malicious:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def test_a_pickle_is_not_run(tmp_path, make_model):
    torch.save({"weight": _Malicious(tmp_path / "was_run")}, tmp_path / "model.bin")
    with pytest.raises(CheckpointingError, match="no plain tensors that torch can read"):
        _load(tmp_path / "model.bin", make_model())
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.bin", "There is no checkpoint"),
        ("folder", "is not complete"),
        ("text.bin", "no plain tensors"),
        ("text.safetensors", "no safetensors file"),
        ("text.onnx", "its name ends in none of .bin"),
        ("number.pt", "no state dict of a model"),
    ],
)
def test_what_is_no_checkpoint_is_refused(name, message, tmp_path, make_model):
    (tmp_path / "folder").mkdir()
    for text in ("text.bin", "text.safetensors", "text.onnx"):
        (tmp_path / text).write_text("nothing that anybody can load")
    torch.save({"step": 3}, tmp_path / "number.pt")
    with pytest.raises(CheckpointingError, match=message):
        _load(tmp_path / name, make_model())


def test_unknown_devices_and_precisions_are_refused_when_the_component_is_built():
    with pytest.raises(ConfigError, match="'tpu' is no device"):
        TorchCheckpointLoading("tpu")
    with pytest.raises(ConfigError, match=r"precision 'INT8' is unknown\. Use one of: FP32, FP16, BF16"):
        TorchCheckpointLoading("cpu", "INT8")
    with pytest.raises(ConfigError, match="there is no cuda:99 here"):
        TorchCheckpointLoading(99)
