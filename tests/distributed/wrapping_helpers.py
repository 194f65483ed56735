"""What the tests of activation checkpointing and compilation share."""

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

TOKEN_IDS = torch.arange(2 * 16).reshape(2, 16) * 37 % 128


def plain_name(name: str) -> str:
    """A parameter's name as it was before anything was wrapped around modules."""
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Plain name of each parameter -> gradient of some loss, dropout drawing the same at each call."""
    model.zero_grad()
    torch.manual_seed(3)
    model(TOKEN_IDS).square().mean().backward()
    return {plain_name(name): parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 0.0) -> None:
    """Same names, and values as close as said."""
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(actual[name], tensor, rtol=tolerance, atol=tolerance), name


class OperationCounter(TorchDispatchMode):
    """Counts operations that are really done, by name, as `aten.mm.default`."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def count_in_backward(model: nn.Module) -> Counter[str]:
    """The operations of a backward pass."""
    loss = model(TOKEN_IDS).square().mean()
    with OperationCounter() as counter:
        loss.backward()
    return counter.counts


def compile_eagerly(monkeypatch: Any) -> None:
    """Let torch.compile capture graphs as ever, but run them as they are, without a compiler of C++."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
