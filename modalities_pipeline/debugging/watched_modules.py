"""What of a model can be watched: its modules by name, and the tensors that go in and out of them."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import _disable_current_modes

from modalities_pipeline.distributed.blocks import COMPILED
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.models.parameters import normalized_name


def watched_modules(model: nn.Module, component: str) -> dict[str, nn.Module]:
    """Name -> module for the model (named "") and all modules in it, in the model's order.

    Names are those of the model as it was built: what is wrapped around a module (activation checkpointing, FSDP1) is
    left out.

    Raises:
        ConfigError: a module is compiled; `component`, for the message, is who wants to watch it.
    """
    compiled = [name for name, _ in model.named_modules() if COMPILED in name.split(".")]
    if compiled:
        raise ConfigError(
            f"{component}: {normalized_name(compiled[0] + '.')[:-1] or 'the model'} is compiled, and what goes on in "
            "compiled modules cannot be watched. Use the model without `compiled`."
        )
    # a wrapper comes before the module in it, which then takes over the name
    return {normalized_name(f"{name}.")[:-1]: module for name, module in model.named_modules()}


def named_tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a module's inputs or output: nested lists, tuples and mappings of tensors and other things.

    A sole tensor has the given name, others get their place in square brackets: `name[0]`, `name[logits]`.
    """
    found = list(_tensors(value, ""))
    for place, tensor in found:
        yield (name if len(found) == 1 else f"{name}{place}"), tensor


def named_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among the arguments of a call, as of `named_tensors`: `name[0]`, `name[attention_mask]`."""
    return named_tensors({**dict(enumerate(args)), **kwargs}, name)


def is_recomputation() -> bool:
    """Whether this is within a backward pass: activation checkpointing then calls modules a second time."""
    return torch._C._current_graph_task_id() != -1


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Context for looking at tensors without being seen by autograd, nor by what records operations.

    Selective activation checkpointing is such a recorder: it hands out saved outputs by the number of an operation.
    """
    with _disable_current_modes(), torch.no_grad():
        yield


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor, apart from the autograd graph."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _tensors(value: Any, place: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{place}[{key}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{place}[{index}]")
