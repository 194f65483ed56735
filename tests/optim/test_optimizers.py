"""Optimizers: which parameter decays, and the steps themselves."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from modalities_pipeline.exceptions import OptimizerError
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.model import NNModel
from modalities_pipeline.optim.optimizers import get_adam, get_adam_w, get_parameter_groups

_TESTS = Path(__file__).parents[1]
GROUPS = json.loads((_TESTS / "optim" / "vectors" / "optimizer_groups.json").read_text("utf-8"))
ADAM = json.loads((_TESTS / "optim" / "vectors" / "adam.json").read_text("utf-8"))["trajectory"]
MODELS = json.loads((_TESTS / "models" / "vectors" / "gpt2_models.json").read_text("utf-8"))["configs"]
_BIASED = {
    "bias": True,
    **{
        f"{place}_norm_config": {"norm_type": "rms_norm", "config": {"ndim": 128, "epsilon": 1e-5, "bias": True}}
        for place in ("attention", "ffn", "lm_head")
    },
}
CONFIG_OF_MODEL = {
    "abs_gelu_ln_tied_mha": MODELS["abs_gelu_ln_tied_mha"]["config"],
    "rope_swiglu_prms_gqa": MODELS["rope_swiglu_prms_gqa_flash"]["config"],
    "rope_swiglu_prms_mqa_qknorm": MODELS["rope_swiglu_prms_mqa_qknorm"]["config"],
    "rope_swiglu_rms_bias": MODELS["nope_swiglu_rms_nobias_eps"]["config"] | _BIASED,
}
# Unknown names ("foo") are refused here instead of ignored.
CASES = [(name, case) for name, cases in GROUPS.items() for case in cases if "foo" not in case]
OPTIONS = {
    "lr": 1e-2,
    "betas": (0.9, 0.95),
    "eps": 1e-8,
    "weight_decay": 0.1,
    "weight_decay_groups_excluded": ["embedding", "layernorm"],
}


class TwoVectors(NNModel):
    """The two parameters whose steps the vectors record; one decays."""

    def __init__(self) -> None:
        super().__init__(weight_decay_groups={"linear": ["p1"], "other": ["p2"]})
        self.p1 = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        self.p2 = nn.Parameter(torch.tensor([0.5, 0.25]))


@pytest.mark.parametrize(("name", "case"), CASES)
def test_parameters_fall_into_the_groups_of_modalities(name, case):
    excluded = json.loads(case.split("excluded=")[1].split(" weight_decay")[0].replace("'", '"'))
    weight_decay = float(case.split("weight_decay=")[1])
    model = build_gpt2(**CONFIG_OF_MODEL[name])
    expected = GROUPS[name][case]
    if "error" in expected:
        with pytest.raises(OptimizerError, match="No parameter is left with weight decay"):
            get_parameter_groups(model, weight_decay, excluded)
        return
    names = {parameter: key for key, parameter in model.named_parameters()}
    groups = get_parameter_groups(model, weight_decay, excluded)
    assert [
        {"weight_decay": group["weight_decay"], "params": [names[parameter] for parameter in group["params"]]}
        for group in groups
    ] == expected


@pytest.mark.parametrize(("name", "get_optimizer"), [("adam", get_adam), ("adam_w", get_adam_w)])
def test_four_steps_match_modalities(name, get_optimizer):
    model = TwoVectors()
    optimizer = get_optimizer(
        lr=1e-2,
        wrapped_model=model,
        betas=(0.9, 0.95),
        eps=1e-8,
        weight_decay=0.1,
        weight_decay_groups_excluded=["other"],
    )
    for step, (expected1, expected2) in enumerate(ADAM[name]):
        model.p1.grad = torch.tensor([0.1, -0.2, 0.3]) * (step + 1)
        model.p2.grad = torch.tensor([-0.5, 0.25]) / (step + 1)
        optimizer.step()
        assert model.p1.tolist() == pytest.approx(expected1, abs=1e-6)
        assert model.p2.tolist() == pytest.approx(expected2, abs=1e-6)


def test_without_gradients_only_decayed_groups_shrink(make_gpt2_config):
    """Norms and embeddings named in the exclusion list keep their size (B057)."""
    model = build_gpt2(**make_gpt2_config())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    get_adam_w(
        lr=0.1,
        wrapped_model=model,
        betas=(0.9, 0.95),
        eps=1e-8,
        weight_decay=0.5,
        weight_decay_groups_excluded=["embedding", "layernorm"],
    ).step()
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {name for name in before if "attn." in name or "mlp." in name or "lm_head." in name}


def test_frozen_parameters_are_left_out(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    model.transformer["wte"].weight.requires_grad_(False)
    (group,) = get_parameter_groups(model, 0.1, [])
    assert len(group["params"]) == len(list(model.parameters())) - 1


def test_a_model_without_trainable_parameters_is_refused(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config()).requires_grad_(False)
    with pytest.raises(OptimizerError, match="no trainable parameters"):
        get_parameter_groups(model, 0.1, [])


def test_an_unknown_group_is_refused_and_the_known_ones_listed(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config())
    with pytest.raises(OptimizerError, match=r"no group norms\. Its groups: linear, embedding, layernorm"):
        get_parameter_groups(model, 0.1, ["norms"])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"linear": ["p1", "p2"], "other": ["p2"]}, "Parameter p2 is in linear and other"),
        ({"other": ["p2"]}, "Parameter p1 is in no weight decay group"),
        ({"linear": ["p1"], "other": ["p2"], "norm": ["ln"]}, r"No parameter of the model is in the group norm \(ln\)"),
    ],
)
def test_groups_that_do_not_make_up_the_model_are_refused(groups, message):
    """A parameter in no or two groups, and patterns that match nothing (B057)."""
    model = TwoVectors()
    model.weight_decay_groups = groups
    with pytest.raises(OptimizerError, match=message):
        get_parameter_groups(model, 0.1, ["other"])


def test_patterns_of_frozen_and_tied_parameters_are_no_slips():
    model = TwoVectors()
    model.head = model.p2
    model.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
    model.weight_decay_groups = {"linear": ["p1"], "other": ["p2"], "head": ["head"], "frozen": ["frozen"]}
    decayed, others = get_parameter_groups(model, 0.1, ["other"])
    assert [len(group["params"]) for group in (decayed, others)] == [1, 1]


@pytest.mark.parametrize("get_optimizer", [get_adam, get_adam_w])
@pytest.mark.parametrize("excluded", [[], ["embedding"]])
def test_a_plain_model_and_one_with_frozen_parameters_are_trained(get_optimizer, excluded, make_gpt2_config):
    """W24: Modalities refuses both, also where nothing is excluded."""
    model = build_gpt2(**make_gpt2_config())
    frozen = model.transformer["wte"].weight.requires_grad_(False)
    model.transformer["lm_head"].weight.requires_grad_(not excluded)
    excluded = ["layernorm"] if excluded else []
    optimizer = get_optimizer(wrapped_model=model, **{**OPTIONS, "weight_decay_groups_excluded": excluded})
    trained = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    assert trained == {parameter for parameter in model.parameters() if parameter.requires_grad}
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model({"input_ids": torch.arange(32)[None]})["logits"].square().mean().backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (not parameter.requires_grad), name
    assert frozen not in optimizer.state


def _weights_after_three_steps(model: nn.Module, **kernels: bool) -> torch.Tensor:
    optimizer = get_adam_w(wrapped_model=model, **OPTIONS, **kernels)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_all_kernels_make_the_same_steps(dtype, tolerance, make_gpt2_config, fill):
    model = build_gpt2(**make_gpt2_config(n_layer=1)).to(dtype)
    fill(model)
    expected = _weights_after_three_steps(copy.deepcopy(model), foreach=False)
    for kernels in ({}, {"foreach": True}, {"fused": True}):
        weights = _weights_after_three_steps(copy.deepcopy(model), **kernels)
        assert torch.allclose(weights, expected, rtol=0, atol=tolerance), kernels


def test_a_fused_kernel_that_there_is_not_is_refused_before_the_first_step():
    model = TwoVectors()
    model.p1 = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(
        OptimizerError, match=r"fused: there is no kernel for the parameter p1 \(torch.complex64 on cpu"
    ):
        get_adam_w(wrapped_model=model, fused=True, **{**OPTIONS, "weight_decay_groups_excluded": []})


def test_parameters_without_memory_are_refused(make_gpt2_config):
    model = build_gpt2(**make_gpt2_config(use_meta_device=True))
    with pytest.raises(OptimizerError, match=r"on the meta device, such as transformer\.wte\.weight"):
        get_adam_w(wrapped_model=model, **OPTIONS)


def test_names_that_wrappers_change_are_matched_all_the_same():
    """Also where the pattern looks at the beginning of a name."""
    model = TwoVectors()
    model.weight_decay_groups = {"linear": ["^p1$"], "other": ["^p2$"]}
    compiled = torch.compile(model, backend="eager")
    assert [list(group["params"]) for group in get_parameter_groups(compiled, 0.1, ["other"])] == [
        [model.p1],
        [model.p2],
    ]
