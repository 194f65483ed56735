"""Optimizers: which parameter decays, and the steps themselves."""

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
CONFIG_OF_MODEL = {
    "abs_gelu_ln_tied_mha": "abs_gelu_ln_tied_mha",
    "rope_swiglu_prms_gqa": "rope_swiglu_prms_gqa_flash",
    "rope_swiglu_prms_mqa_qknorm": "rope_swiglu_prms_mqa_qknorm",
}
# Unknown names ("foo") are refused here instead of ignored.
CASES = [
    (name, case) for name, cases in GROUPS.items() if name in CONFIG_OF_MODEL for case in cases if "foo" not in case
]


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
    model = build_gpt2(**MODELS[CONFIG_OF_MODEL[name]]["config"])
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


@pytest.mark.parametrize(("patterns", "found"), [(["p1", "p2"], "linear and other"), ([], "no weight decay group")])
def test_a_parameter_in_no_or_two_groups_is_refused(patterns, found):
    """See B057."""
    model = TwoVectors()
    model.weight_decay_groups = {"linear": patterns, "other": ["p2"]}
    with pytest.raises(OptimizerError, match=f"is in {found}"):
        get_parameter_groups(model, 0.1, ["other"])
