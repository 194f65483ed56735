"""Activation checkpointing computes what the plain model computes, and keeps less."""

import copy
from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from pydantic import BaseModel
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import CheckpointPolicy
from wrapping_helpers import assert_same, count_in_backward, gradients, plain_name

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.distributed import activation_checkpointing
from modalities_pipeline.distributed.activation_checkpointing import (
    get_activation_checkpointed_fsdp1_model,
    get_activation_checkpointed_model,
)
from modalities_pipeline.distributed.wrapping_configs import (
    ActivationCheckpointingVariants,
    FullACParams,
    SaveableOps,
    SelectiveLayerACParams,
    SelectiveOpACParams,
)
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.models.gpt2 import GPT2Block, build_gpt2

FULL = ActivationCheckpointingVariants.FULL_ACTIVATION_CHECKPOINTING, FullACParams()
ATTENTION = SaveableOps.FLASH_ATTENTION_CPU


def _every(ac_freq):
    variant = ActivationCheckpointingVariants.SELECTIVE_LAYER_ACTIVATION_CHECKPOINTING
    return variant, SelectiveLayerACParams(ac_freq=ac_freq)


def _saving(*keys):
    variant = ActivationCheckpointingVariants.SELECTIVE_OP_ACTIVATION_CHECKPOINTING
    return variant, SelectiveOpACParams(save_ops_keys=list(keys))


def _checkpoint(model, variant_and_params, layers_fqn="transformer.h", **options):
    variant, params = variant_and_params
    return get_activation_checkpointed_model(variant, layers_fqn, model, params, **options)


@pytest.fixture
def make_model(make_gpt2_config):
    def make(num_layers=2, **changes):
        torch.manual_seed(0)
        return build_gpt2(**make_gpt2_config(n_layer=num_layers, **changes))

    return make


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("how", [FULL, _every(2), _saving(*SaveableOps)], ids=["full", "layer", "op"])
def test_gradients_are_those_without_checkpointing(how, dropout, make_model):
    """W6: with dropout, what is dropped in the forward pass is dropped in the recomputation."""
    model = make_model(dropout=dropout, activation_type="gelu", bias=True)
    expected = gradients(model)
    assert _checkpoint(model, how) is model
    assert_same(gradients(model), expected)


@pytest.mark.parametrize("how", [FULL, _saving(*SaveableOps)], ids=["full", "op"])
def test_the_random_state_may_be_left_alone_as_modalities_does(how, make_model):
    model = make_model(dropout=0.5)
    expected = gradients(model)
    actual = gradients(_checkpoint(model, how, preserve_rng_state=False))
    name = "transformer.h.0.attn.q_attn.weight"
    assert not torch.allclose(actual[name], expected[name], rtol=0.1)


def test_the_random_state_is_kept_for_layers_with_dropout_only(make_model, monkeypatch):
    """Keeping it costs time: a GPU waits."""
    model = make_model()
    model.transformer["h"]["1"].attn.dropout = 0.1  # drops without a dropout layer
    chosen = []
    monkeypatch.setattr(
        activation_checkpointing,
        "checkpoint_wrapper",
        lambda layer, preserve_rng_state: chosen.append(preserve_rng_state) or layer,
    )
    _checkpoint(model, FULL)
    assert chosen == [False, True]


@pytest.mark.parametrize(
    ("how", "recomputed"),
    [(FULL, [0, 1, 2, 3, 4]), (_every(1), [0, 1, 2, 3, 4]), (_every(2), [1, 3]), (_every(3), [2]), (_every(6), [])],
)
@pytest.mark.parametrize("attempt", ["first model", "second model"])
def test_the_selected_layers_are_computed_again_in_the_backward_pass(how, recomputed, attempt, make_model):
    """W16: which layers these are does not depend on other models of the process."""
    model = make_model(num_layers=5)
    calls = Counter()
    for index, block in enumerate(model.transformer["h"].children()):
        block.register_forward_pre_hook(lambda *_, index=index: calls.update([index]))
    gradients(_checkpoint(model, how))
    assert [index for index in range(5) if calls[index] == 2] == recomputed
    assert calls.total() == 5 + len(recomputed)


def test_layers_may_be_a_list_and_are_not_counted_on_from_part_to_part():
    parts = [nn.Sequential(nn.ModuleList(nn.Linear(2, 2) for _ in range(3))) for _ in range(2)]
    assert _checkpoint(parts, _every(2), layers_fqn="0") == parts
    for part in parts:
        names = [name for name, _ in part.named_parameters() if name.endswith("weight")]
        assert names == ["0.0.weight", "0.1._checkpoint_wrapped_module.weight", "0.2.weight"]


@pytest.mark.parametrize(
    ("keys", "num_products", "num_attentions"),
    [([ATTENTION], 7, 0), ([SaveableOps.MM], 3, 1), ([SaveableOps.MM, ATTENTION], 3, 0), ([SaveableOps.MAX], 7, 1)],
)
def test_outputs_of_named_operations_are_kept_but_for_every_second_product(
    keys, num_products, num_attentions, make_model
):
    """A layer has 7 products without a bias: q, k, v, c_proj, W, V, W_2."""
    model = make_model(num_layers=1)
    plain = count_in_backward(model)
    full = count_in_backward(_checkpoint(copy.deepcopy(model), FULL)) - plain
    selective = count_in_backward(_checkpoint(model, _saving(*keys))) - plain
    attention = f"{ATTENTION.removeprefix('ops.')}"
    # The recomputation ends as soon as it has what the backward pass needs: before the last product.
    assert (full["aten.mm.default"], full[attention]) == (6, 1)
    assert (selective["aten.mm.default"], selective[attention]) == (min(num_products, 6), num_attentions)


def test_an_operation_that_drops_is_not_left_out_of_the_recomputation():
    """W6: if it was, all that is dropped after it would be different."""
    flash = torch.ops.aten._scaled_dot_product_flash_attention.default
    forward, _ = activation_checkpointing._selective_contexts({flash})()
    q = torch.zeros(1)
    assert forward.policy_fn(None, flash, q, q, q) is CheckpointPolicy.MUST_SAVE
    assert forward.policy_fn(None, flash, q, q, q, 0.0, True) is CheckpointPolicy.MUST_SAVE
    assert forward.policy_fn(None, flash, q, q, q, 0.1, True) is CheckpointPolicy.PREFER_RECOMPUTE
    assert forward.policy_fn(None, flash, q, q, q, dropout_p=0.1) is CheckpointPolicy.PREFER_RECOMPUTE


def test_an_evaluation_is_untouched(make_model):
    model = make_model()
    model.eval()
    with torch.no_grad():
        expected = model(torch.zeros(1, 4, dtype=torch.int64))
        assert torch.equal(_checkpoint(model, FULL)(torch.zeros(1, 4, dtype=torch.int64)), expected)


@pytest.mark.parametrize("saved_with_checkpointing", [True, False])
def test_checkpoints_interchange_with_those_of_the_plain_model(
    saved_with_checkpointing, make_model, process_group, tmp_path
):
    first, second = make_model(), make_model()
    (_checkpoint(first, FULL) if saved_with_checkpointing else _checkpoint(second, FULL))
    weights = {plain_name(name): parameter.detach().clone() for name, parameter in first.named_parameters()}
    nn.init.zeros_(second.transformer["wte"].weight)
    dcp.save(get_model_state_dict(first), checkpoint_id=tmp_path)
    state = {name: torch.zeros_like(tensor) for name, tensor in get_model_state_dict(second).items()}
    assert weights.keys() <= state.keys()
    dcp.load(state, checkpoint_id=tmp_path)
    set_model_state_dict(second, state)
    assert_same({plain_name(name): parameter for name, parameter in second.named_parameters()}, weights)
    second.load_state_dict(first.state_dict())  # torch's own way


@pytest.mark.parametrize(
    ("layers_fqn", "message"),
    [
        ("transformer.x", "'transformer.x' is no module of the model.*The model has: transformer, transformer.h,"),
        (
            "transformer.wte",
            "'transformer.wte' is of class Embedding, but has to be the name of a ModuleDict or ModuleList",
        ),
    ],
)
def test_layers_that_are_not_there_are_refused_with_what_there_is(layers_fqn, message, make_model):
    with pytest.raises(ConfigError, match=message):
        _checkpoint(make_model(), FULL, layers_fqn=layers_fqn)


def test_checkpointing_twice_or_after_compilation_is_refused(make_model):
    model = _checkpoint(make_model(), _every(2))
    with pytest.raises(ConfigError, match=r"transformer\.h\.1 has activation checkpointing already"):
        _checkpoint(model, FULL)
    model = make_model()
    model.transformer["h"]["0"] = torch.compile(model.transformer["h"]["0"])
    with pytest.raises(ConfigError, match=r"transformer\.h\.0 is compiled already\. Apply activation checkpointing f"):
        _checkpoint(model, FULL)


def test_parameters_of_another_variant_are_refused(make_model):
    with pytest.raises(ConfigError, match="SelectiveLayerACParams are not the ones of full_activation_checkpointing"):
        _checkpoint(make_model(), (FULL[0], SelectiveLayerACParams(ac_freq=1)))


def test_an_unknown_operation_is_a_fault_of_the_config_with_the_one_that_was_meant():
    """Modalities notices at the first forward pass."""

    class Model(BaseModel):
        model: Any

    config = {
        "ac_variant": "selective_op_activation_checkpointing",
        "layers_fqn": "transformer.h",
        "model": {"component_key": "model", "variant_key": "compiled", "config": {"model": [], "block_names": []}},
        "ac_fun_params": {"save_ops_keys": ["ops.aten.mm.default", "ops.aten.nm.default"]},
    }
    node = {"component_key": "model", "variant_key": "activation_checkpointed", "config": config}
    with pytest.raises(ConfigError, match=r"save_ops_keys\.1: has to be .*; did you mean 'ops\.aten\.mm\.default'\?"):
        ComponentFactory(Registry()).check({"model": node}, Model)


@pytest.fixture
def fsdp1_model(make_model, process_group):
    """FSDP1 on the CPU needs the device, and cannot take over the parameters of rank 0."""
    return FullyShardedDataParallel(
        make_model(dropout=0.5),
        auto_wrap_policy=ModuleWrapPolicy({GPT2Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def test_modules_of_an_fsdp1_model_are_checkpointed_by_class_name(fsdp1_model):
    expected = gradients(fsdp1_model)
    calls = Counter()
    for name, module in fsdp1_model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: calls.update([name.rpartition(".")[2]]))
    assert get_activation_checkpointed_fsdp1_model(fsdp1_model, ["SwiGLU", "GPT2Block"]) is fsdp1_model
    assert_same(gradients(fsdp1_model), expected)
    assert calls["attn"] == 4
    assert calls["lm_head"] == 1


@pytest.mark.parametrize("names", [None, []])
def test_no_class_name_means_no_checkpointing(names, fsdp1_model):
    modules = list(fsdp1_model.modules())
    assert list(get_activation_checkpointed_fsdp1_model(fsdp1_model, names).modules()) == modules


def test_what_cannot_be_checkpointed_in_an_fsdp1_model_is_refused(fsdp1_model, make_model):
    with pytest.raises(ConfigError, match=r"the model has no Block\. It has: .*GPT2Block, GPT2LLM, Identity"):
        get_activation_checkpointed_fsdp1_model(fsdp1_model, ["Block"])
    with pytest.raises(ConfigError, match=r"not for a GPT2LLM\. Use activation_checkpointed"):
        get_activation_checkpointed_fsdp1_model(make_model(), ["GPT2Block"])
