"""App states: what a checkpoint holds, of one model and of the parts of one."""

import copy
import json
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.configs import RawAppStateConfig
from modalities_pipeline.exceptions import CheckpointingError, ConfigError
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.optim.configs import AdamWOptimizerConfig
from modalities_pipeline.optim.optimizers import get_adam_w
from modalities_pipeline.optim.optimizers_list import OptimizersList
from modalities_pipeline.optim.scheduler_configs import StepLRSchedulerConfig
from modalities_pipeline.optim.schedulers import get_linear_warmup_cosine_annealing_lr, get_step_lr
from modalities_pipeline.optim.schedulers_list import SchedulerList

KEYS = json.loads((Path(__file__).parent / "vectors" / "dcp_keys_w1.json").read_text("utf-8"))["keys"]


class Part(nn.Module):
    """Some layers of a model, under their names in it."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(3, 3) for name in names})


def _app_state(*parts: nn.Module, has_scheduler: bool = True) -> AppState:
    model = list(parts) if len(parts) > 1 else parts[0]
    optimizer = get_adam_w(0.1, model, (0.9, 0.95), 1e-8, 0.0, [])
    return AppState(model, optimizer, get_step_lr(optimizer, 2, 0.5) if has_scheduler else None)


def _step(app_state: AppState, count: int = 1) -> None:
    for step in range(count):
        for part in app_state.model_parts:
            for parameter in part.parameters():
                parameter.grad = torch.full_like(parameter, 0.1 + step)
        app_state.optimizer.step()
        if app_state.lr_scheduler is not None:
            app_state.lr_scheduler.step()


def _weights(app_state: AppState) -> dict[str, torch.Tensor]:
    return {name: tensor for part in app_state.model_parts for name, tensor in part.state_dict().items()}


def test_keys_shapes_and_dtypes_are_those_of_modalities(make_gpt2_config, tmp_path):
    """Model with its buffers, momenta, options of each parameter, all that the scheduler knows."""
    model = build_gpt2(**make_gpt2_config(ffn_hidden=512))
    optimizer = get_adam_w(1e-3, model, (0.9, 0.95), 1e-8, 0.1, ["embedding", "layernorm"])
    app_state = AppState(model, optimizer, get_linear_warmup_cosine_annealing_lr(optimizer, 2, 6, 1e-4, 1e-5, 1e-3))
    dcp.save({"app": app_state}, checkpoint_id=tmp_path, no_dist=True)
    saved = dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata
    found = {
        key: {"size": list(item.size), "dtype": str(item.properties.dtype), "chunks": len(item.chunks)}
        if isinstance(item, TensorStorageMetadata)
        else "bytes"
        for key, item in saved.items()
    }
    assert found == KEYS


@pytest.mark.parametrize("has_scheduler", [True, False])
@pytest.mark.parametrize("names", [[("a", "b", "c")], [("a",), ("b", "c")], [("a", "c"), ("b",)]])
def test_a_checkpoint_goes_on_where_it_was_made_however_the_model_is_split(names, has_scheduler, tmp_path):
    app_state = _app_state(*(Part(*part) for part in names), has_scheduler=has_scheduler)
    _step(app_state, 3)
    dcp.save({"app": app_state}, checkpoint_id=tmp_path, no_dist=True)
    _step(app_state, 3)
    expected = _weights(app_state)
    for split in ([("a", "b", "c")], [("c",), ("a", "b")]):
        resumed = _app_state(*(Part(*part) for part in split), has_scheduler=has_scheduler)
        dcp.load({"app": resumed}, checkpoint_id=tmp_path, no_dist=True)
        assert resumed.is_loaded
        _step(resumed, 3)
        weights = _weights(resumed)
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
        rates = [next(group["lr"] for group in state.optimizer.param_groups) for state in (app_state, resumed)]
        assert rates[0] == rates[1]


def test_without_a_scheduler_there_is_no_entry_for_it():
    assert _app_state(Part("a"), has_scheduler=False).state_dict().keys() == {"model", "optimizer"}


def test_frozen_parameters_are_saved_without_momenta():
    part = Part("a", "b")
    part.layers["a"].requires_grad_(False)
    state = _app_state(part).state_dict()
    assert "layers.a.weight" in state["model"]
    assert {key.split(".")[2] for key in state["optimizer"]} == {"b"}


def test_names_have_to_be_unique_over_the_parts():
    app_state = _app_state(Part("a"), Part("a", "b"))
    with pytest.raises(CheckpointingError, match=r"Two model parts have layers\.a\.bias, layers\.a\.weight\."):
        app_state.state_dict()


def test_a_second_state_is_refused():
    app_state = _app_state(Part("a"), Part("b"))
    state = copy.deepcopy(app_state.state_dict())
    app_state.load_state_dict(state)
    with pytest.raises(CheckpointingError, match="already loaded"):
        app_state.load_state_dict(state)


@pytest.mark.parametrize(("names", "differing"), [(("a",), "b"), (("a", "b", "c"), "c")])
def test_a_state_of_another_model_is_refused(names, differing):
    state = _app_state(Part("a"), Part("b")).state_dict()
    with pytest.raises(CheckpointingError, match=rf"differ in: layers\.{differing}\.bias, layers\.{differing}\.weight"):
        _app_state(Part(*names)).load_state_dict(state)


def test_an_optimizer_of_other_parts_is_refused():
    one, two = Part("a"), Part("b")
    joint = get_adam_w(0.1, [one, two], (0.9, 0.95), 1e-8, 0.0, [])
    single = get_adam_w(0.1, one, (0.9, 0.95), 1e-8, 0.0, [])
    for model, optimizer in (([one, two], single), ([two, one], joint), ([one], joint), (one, joint)):
        with pytest.raises(ConfigError, match="Give both the same parts, in the same order"):
            AppState(model, optimizer)


def test_an_optimizer_that_would_train_another_model_is_refused():
    model = Part("a")
    with pytest.raises(ConfigError, match="2 of the optimizer's parameters are not the model's"):
        AppState(model, get_adam_w(0.1, Part("a"), (0.9, 0.95), 1e-8, 0.0, []))


def test_a_scheduler_of_another_optimizer_is_refused():
    for model in (Part("a"), [Part("a"), Part("b")]):
        optimizer, other = (get_adam_w(0.1, model, (0.9, 0.95), 1e-8, 0.0, []) for _ in range(2))
        assert AppState(model, optimizer, get_step_lr(optimizer, 2, 0.5))
        with pytest.raises(ConfigError, match="lr_scheduler is one of another optimizer"):
            AppState(model, optimizer, get_step_lr(other, 2, 0.5))


def test_components_of_parts_fit_together_as_a_config_has_them():
    parts = [Part("a"), Part("b")]
    fields = {"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0, "weight_decay_groups_excluded": []}
    optimizer = get_adam_w(**dict(AdamWOptimizerConfig(wrapped_model=parts, **fields)))
    scheduler = get_step_lr(**dict(StepLRSchedulerConfig(optimizer=optimizer, step_size=2, gamma=0.5)))
    app_state = AppState(**dict(RawAppStateConfig(model=parts, optimizer=optimizer, lr_scheduler=scheduler)))
    assert isinstance(app_state.optimizer, OptimizersList)
    assert isinstance(app_state.lr_scheduler, SchedulerList)
