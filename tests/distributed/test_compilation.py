"""Compiled blocks compute what the blocks themselves compute, in the place of them."""

import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from wrapping_helpers import TOKEN_IDS, assert_same, compile_eagerly, gradients, plain_name

from modalities_pipeline.distributed.activation_checkpointing import get_activation_checkpointed_model
from modalities_pipeline.distributed.compilation import get_compiled_model
from modalities_pipeline.distributed.wrapping_configs import ActivationCheckpointingVariants, FullACParams
from modalities_pipeline.exceptions import ConfigError, ModelStateError
from modalities_pipeline.models.gpt2 import build_gpt2

FULL = ActivationCheckpointingVariants.FULL_ACTIVATION_CHECKPOINTING


@pytest.fixture
def make_model(make_gpt2_config):
    def make(num_layers=2):
        torch.manual_seed(0)
        return build_gpt2(**make_gpt2_config(n_layer=num_layers))

    return make


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
def test_a_compiled_model_computes_what_the_plain_one_computes(make_model):
    """For real, with activation checkpointing."""
    model = make_model(num_layers=1)
    logits, expected = model(TOKEN_IDS), gradients(model)
    get_activation_checkpointed_model(FULL, "transformer.h", model, FullACParams())
    get_compiled_model(model, ["GPT2Block"])
    assert torch.allclose(model(TOKEN_IDS), logits, atol=1e-5)
    assert_same(gradients(model), expected, tolerance=1e-5)


def test_compiled_blocks_stand_in_the_places_of_the_blocks(make_model, monkeypatch):
    compile_eagerly(monkeypatch)
    model = make_model()
    logits, expected = model(TOKEN_IDS), gradients(model)
    assert get_compiled_model(model, ["GPT2Block"]) is model
    assert torch.allclose(model(TOKEN_IDS), logits, atol=1e-6)
    assert_same(gradients(model), expected, tolerance=1e-6)
    names = [name for name, _ in model.named_parameters()]
    assert names[1:3] == [f"transformer.h.0._orig_mod.{norm}_norm.weight" for norm in ("attention", "ffn")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"fullgraph": True, "options": None}),
        ({"fullgraph": None, "debug": None}, {"fullgraph": False, "options": None}),
        ({"fullgraph": False, "debug": True}, {"fullgraph": False, "options": {"trace.enabled": True}}),
    ],
)
def test_what_the_compiler_is_told(fields, expected, make_model, monkeypatch):
    told = []
    monkeypatch.setattr(torch, "compile", lambda module, **options: told.append(options) or module)
    get_compiled_model(make_model(), ["GPT2Block"], **fields)
    assert told == [expected, expected]


def test_each_part_of_a_model_and_blocks_within_blocks_are_compiled(make_model, monkeypatch):
    compile_eagerly(monkeypatch)
    parts = [make_model(num_layers=1), make_model(num_layers=1)]
    assert get_compiled_model(parts, ["GPT2Block", "SwiGLU"]) == parts
    for part in parts:
        assert "transformer.h.0._orig_mod.mlp._orig_mod.W.weight" in dict(part.named_parameters())


def test_checkpointing_is_compiled_with_its_block(make_model, monkeypatch):
    """So that the compiler sees what is to be computed again."""
    compile_eagerly(monkeypatch)
    model = get_activation_checkpointed_model(FULL, "transformer.h", make_model(), FullACParams())
    expected = gradients(model)
    get_compiled_model(model, ["GPT2Block"])
    assert "transformer.h.0._orig_mod._checkpoint_wrapped_module.attn.q_attn.weight" in dict(model.named_parameters())
    assert_same(gradients(model), expected, tolerance=1e-6)


@pytest.mark.parametrize("saved_compiled", [True, False])
def test_checkpoints_interchange_with_those_of_the_plain_model(saved_compiled, make_model, process_group, tmp_path):
    first, second = make_model(), make_model()
    get_compiled_model(first if saved_compiled else second, ["GPT2Block"])
    weights = {plain_name(name): parameter.detach().clone() for name, parameter in first.named_parameters()}
    nn.init.zeros_(second.transformer["wte"].weight)
    dcp.save(get_model_state_dict(first), checkpoint_id=tmp_path)
    state = {name: torch.zeros_like(tensor) for name, tensor in get_model_state_dict(second).items()}
    dcp.load(state, checkpoint_id=tmp_path)
    set_model_state_dict(second, state)
    assert_same({plain_name(name): parameter for name, parameter in second.named_parameters()}, weights)


def test_an_unknown_class_is_refused_with_those_that_there_are(make_model):
    with pytest.raises(ConfigError, match=r"compiled: block_names: the model has no GPTBlock\. It has: .*GPT2Block"):
        get_compiled_model(make_model(), ["GPTBlock"])


def test_a_block_that_is_used_in_two_places_or_compiled_already_is_refused(make_model):
    model = make_model()
    model.transformer["h"]["1"] = model.transformer["h"]["0"]
    with pytest.raises(
        ModelStateError, match=r"transformer\.h\.0 and transformer\.h\.1 are one and the same GPT2Block"
    ):
        get_compiled_model(model, ["GPT2Block"])
    model = get_compiled_model(make_model(), ["GPT2Block"])
    with pytest.raises(ConfigError, match=r"transformer\.h\.1 is compiled already"):
        get_compiled_model(model, ["GPT2Block"])


def test_finding_the_places_of_many_blocks_takes_linear_time(monkeypatch):
    """W36: the search for the module that holds a block went through all modules for each block."""
    monkeypatch.setattr(torch, "compile", lambda module, **options: nn.Sequential(module))
    model = nn.ModuleList(nn.Linear(1, 1) for _ in range(300))
    calls = []
    original = nn.Module.named_modules
    monkeypatch.setattr(nn.Module, "named_modules", lambda *args, **kw: calls.append(1) or original(*args, **kw))
    get_compiled_model(model, ["Linear"])
    assert len(calls) < 10 * len(model)
    assert all(isinstance(block, nn.Sequential) for block in model)
