"""What debugging changes in a process is undone when it is closed."""

import gc
import os

import pytest
import torch
from torch import nn

from modalities_pipeline.debugging.hooks import register_nan_hooks
from modalities_pipeline.debugging.settings import Debugging

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"


def _state():
    return (
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        os.environ.get(VARIABLE),
    )


DETERMINISTIC = (True, False, True, False, ":4096:8")


@pytest.fixture(autouse=True)
def _state_as_before():
    before = _state()
    yield
    assert _state() == before


@pytest.mark.parametrize("variable", [None, ":16:8"])
def test_determinism_lasts_until_it_is_closed_once(variable, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    if variable:
        monkeypatch.setenv(VARIABLE, variable)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    before = _state()
    debugging = Debugging(enable_determinism=True)
    assert _state() == DETERMINISTIC
    debugging.close()
    assert _state() == before == (False, True, True, True, variable)
    torch.use_deterministic_algorithms(False)
    debugging.close()
    assert not torch.are_deterministic_algorithms_enabled()


def test_what_is_not_deterministic_raises():
    with Debugging(enable_determinism=True), pytest.raises(RuntimeError, match="deterministic"):
        torch.ones(4).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))


def test_hooks_are_kept_and_removed_also_after_an_error():
    model = nn.Sequential(nn.Identity())
    hooks = register_nan_hooks(model)
    single = model.register_forward_hook(lambda *_: None)
    assert len(model._forward_hooks) == 2
    with pytest.raises(TypeError), Debugging([hooks, single]):
        model(None, "one too many")
    assert not model._forward_hooks
    assert not model[0]._forward_hooks


def test_without_determinism_nothing_of_the_process_changes():
    before = _state()
    with Debugging(forward_hooks=[], enable_determinism=False):
        assert _state() == before


def test_a_forgotten_one_is_closed_with_its_life():
    debugging = Debugging(enable_determinism=True)
    assert _state() == DETERMINISTIC
    del debugging
    gc.collect()
