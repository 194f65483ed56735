"""Forward hooks that look for NaNs, or show what goes through a model."""

import logging
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.debugging.watched_modules import (
    is_recomputation,
    local_part,
    named_inputs,
    named_tensors,
    unseen,
    watched_modules,
)
from modalities_pipeline.exceptions import TrainingError

logger = logging.getLogger(__name__)


class NaNError(TrainingError, ValueError):
    """A NaN went into a module, or came out of one."""


def _flat(parts: list[nn.Module], handles: list[list[RemovableHandle]]) -> list[RemovableHandle]:
    return [handle for part in handles for handle in part]


@for_each_part("model", combine=_flat)
def register_nan_hooks(model: nn.Module, raise_exception: bool = False) -> list[RemovableHandle]:
    """Log an error for each module with a NaN in its inputs or outputs; on FSDP ranks, in what the rank holds of them.

    Modules are looked at as they end, so the first one reported is where the NaN came up or came in. Looking at a
    tensor makes a GPU wait.

    Args:
        model: one model, or a list of the parts of one, for which there is one list of handles.
        raise_exception: raise `NaNError`, which is a ValueError, instead of going on.

    Raises:
        ConfigError: the model is compiled.
    """
    return [
        module.register_forward_hook(partial(_look_for_nans, name, raise_exception), with_kwargs=True)
        for name, module in watched_modules(model, "nan_hook").items()
    ]


@for_each_part("model", combine=_flat)
def register_print_forward_hooks(model: nn.Module, print_shape_only: bool = False) -> list[RemovableHandle]:
    """Print class, name, and shapes of inputs and outputs of each module as it ends, and their values if asked for.

    Args:
        model: one model, or a list of the parts of one, for which there is one list of handles.
        print_shape_only: leave out the values.

    Raises:
        ConfigError: the model is compiled.
    """
    return [
        module.register_forward_hook(partial(_print_tensors, name, print_shape_only), with_kwargs=True)
        for name, module in watched_modules(model, "print_forward_hook").items()
    ]


def _look_for_nans(
    name: str, raise_exception: bool, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> None:
    with unseen():
        found = [place for place, tensor in _inputs_and_outputs(args, kwargs, output) if tensor.isnan().any()]
    if not found:
        return
    message = f"NaN in {' and '.join(found)} of {name or 'the model'} ({type(module).__name__})"
    if raise_exception:
        raise NaNError(f"{message}.")
    logger.error(message)


def _print_tensors(
    name: str, print_shape_only: bool, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> None:
    with unseen():
        tensors = _inputs_and_outputs(args, kwargs, output)
        if tensors:
            print(f"{type(module).__name__} {name or '(the model)'}")
        for place, tensor in tensors:
            print(f"  {place}: shape {tuple(tensor.shape)}, {tensor.dtype}")
            if not print_shape_only:
                print(f"    {tensor}")


def _inputs_and_outputs(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> list[tuple[str, torch.Tensor]]:
    """(place, what this rank has of the tensor); nothing at the second call that activation checkpointing makes."""
    if is_recomputation():
        return []
    tensors = [*named_inputs(args, kwargs, "input"), *named_tensors(output, "output")]
    return [(place, local_part(tensor)) for place, tensor in tensors if not tensor.is_meta]
