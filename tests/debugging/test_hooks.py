"""Hooks that look for NaNs and that print."""

import logging

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from modalities_pipeline.debugging.hooks import register_nan_hooks, register_print_forward_hooks
from modalities_pipeline.exceptions import ConfigError, TrainingError

NAN = float("nan")


class Breaking(nn.Module):
    """Makes a NaN, in a place of its output."""

    def __init__(self, place):
        super().__init__()
        self.place = place

    def forward(self, x, unused=None):
        bad = x * NAN
        return {"tensor": bad, "dict": {"logits": [x, (bad,)]}, "list": [x, bad], "other": "NaN"}[self.place]


def _model(place="tensor"):
    return nn.Sequential(nn.Identity(), Breaking(place))


@pytest.mark.parametrize(
    ("place", "found"),
    [("tensor", "output"), ("dict", "output[logits][1][0]"), ("list", "output[1]")],
)
def test_a_nan_in_any_output_is_logged_with_module_and_place(place, found, caplog):
    """Modalities looks past dicts, which all of its models give."""
    register_nan_hooks(_model(place))
    model = _model(place)
    register_nan_hooks(model)
    model(torch.ones(2))
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert messages == [f"NaN in {found} of 1 (Breaking)", f"NaN in {found} of the model (Sequential)"]


def test_a_nan_in_an_input_is_found_in_keywords_too(caplog):
    layer = nn.ModuleDict({"b": Breaking("other")})
    register_nan_hooks(layer)
    layer["b"](torch.ones(1), unused=torch.tensor(NAN))
    layer["b"](torch.ones(1), unused=torch.tensor([1]))
    assert [record.getMessage() for record in caplog.records] == ["NaN in input[unused] of b (Breaking)"]


@pytest.mark.parametrize("error_type", [ValueError, TrainingError])
def test_a_nan_ends_the_run_if_that_is_asked_for(error_type):
    model = _model()
    register_nan_hooks(model, raise_exception=True)
    with pytest.raises(error_type, match=r"NaN in output of 1 \(Breaking\)\."):
        model(torch.ones(2))


def test_numbers_infinities_and_integers_are_no_nans(caplog):
    model = nn.Sequential(nn.Identity())
    register_nan_hooks(model, raise_exception=True)
    model(torch.tensor([1.0, float("inf")]))
    model(torch.tensor([1, 2]))
    model(torch.tensor([True]))
    model(torch.ones(1, device="meta"))  # as when the shapes of a pipeline are found out
    assert not caplog.records


def test_printed_are_class_name_shapes_and_values(capsys):
    model = nn.ModuleDict({"b": Breaking("dict")})
    register_print_forward_hooks(model)
    model["b"](torch.ones(2))
    assert capsys.readouterr().out.splitlines() == [
        "Breaking b",
        "  input: shape (2,), torch.float32",
        "    tensor([1., 1.])",
        "  output[logits][0]: shape (2,), torch.float32",
        "    tensor([1., 1.])",
        "  output[logits][1][0]: shape (2,), torch.float32",
        "    tensor([nan, nan])",
    ]


def test_values_are_left_out_if_asked_for(capsys):
    model = nn.Sequential(nn.Identity())
    register_print_forward_hooks(model, print_shape_only=True)
    model(torch.ones(2, 3))
    expected = ["  input: shape (2, 3), torch.float32", "  output: shape (2, 3), torch.float32"]
    assert capsys.readouterr().out.splitlines() == ["Identity 0", *expected, "Sequential (the model)", *expected]


@pytest.mark.parametrize("register", [register_nan_hooks, register_print_forward_hooks])
def test_handles_are_one_flat_list_for_all_parts_and_remove_the_hooks(register):
    parts = [_model(), _model()]
    handles = register(parts)
    assert len(handles) == 6
    assert len(register(parts[0])) == 3
    for handle in handles:
        handle.remove()
    assert [len(module._forward_hooks) for part in parts for module in part.modules()] == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("register", [register_nan_hooks, register_print_forward_hooks])
def test_compiled_models_are_refused(register):
    """A hook would end the compiler's graph, with an error that says nothing of it."""
    with pytest.raises(ConfigError, match="_hook: 0 is compiled"):
        register(nn.Sequential(torch.compile(nn.Identity())))


def test_a_recomputed_module_is_printed_once(capsys):
    layer = nn.Linear(1, 1)
    register_print_forward_hooks(layer, print_shape_only=True)
    checkpoint(layer, torch.ones(1), use_reentrant=False).backward()
    assert capsys.readouterr().out.count("Linear (the model)") == 1


@pytest.mark.parametrize("register", [register_nan_hooks, register_print_forward_hooks])
def test_recorders_of_operations_do_not_see_the_hooks(register):
    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            pytest.fail(str(func))

    model = nn.Identity()
    register(model)
    x = torch.ones(1)
    with Recorder():
        model(x)
