"""Activation checkpointing: activations are computed again in the backward pass instead of being kept."""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.distributed.blocks import CHECKPOINTED, COMPILED, find_blocks, is_wrapped
from modalities_pipeline.distributed.wrapping_configs import (
    AC_PARAMS_TYPES,
    ACParams,
    ActivationCheckpointingVariants,
    SaveableOps,
    SelectiveLayerACParams,
    SelectiveOpACParams,
)
from modalities_pipeline.exceptions import ConfigError

Operation = Callable[..., Any]


@for_each_part("model")
def get_activation_checkpointed_model(
    ac_variant: ActivationCheckpointingVariants,
    layers_fqn: str,
    model: nn.Module,
    ac_fun_params: ACParams,
    preserve_rng_state: bool | None = None,
) -> nn.Module:
    """Put checkpointed layers in the place of a model's layers; returns the same model.

    The variants: all layers; the layers ac_freq - 1, 2 * ac_freq - 1, ...; all layers, but the outputs of the named
    operations are kept, of the matrix products (mm) those of the 1st, 3rd, 5th, ... of a layer.

    Parameter names get `_checkpoint_wrapped_module.`, which state dicts leave out.

    Args:
        layers_fqn: name of the ModuleDict or ModuleList with the layers.
        model: one model, or a list of the parts of one.
        preserve_rng_state: let dropout drop the same in the recomputation; None: for layers that have dropout.

    Raises:
        ConfigError: `layers_fqn` names no such module, the layers are checkpointed or compiled already, or the
            parameters are another variant's.
    """
    if not isinstance(ac_fun_params, AC_PARAMS_TYPES[ac_variant]):
        raise ConfigError(f"activation_checkpointed: {type(ac_fun_params).__name__} are not the ones of {ac_variant}.")
    layers = _find_layers(model, layers_fqn)
    places = list(layers._modules.items())
    _refuse_wrapped((f"{layers_fqn}.{name}", layer) for name, layer in places if layer is not None)
    frequency = ac_fun_params.ac_freq if isinstance(ac_fun_params, SelectiveLayerACParams) else 1
    saved_keys = ac_fun_params.save_ops_keys if isinstance(ac_fun_params, SelectiveOpACParams) else []
    for name, layer in places[frequency - 1 :: frequency]:
        if layer is not None:
            layers.register_module(name, _checkpointed(layer, preserve_rng_state, saved_keys))
    return model


def get_activation_checkpointed_fsdp1_model(
    model: FullyShardedDataParallel, activation_checkpointing_modules: list[str] | None = None
) -> FullyShardedDataParallel:
    """Checkpoint all modules of the named classes within an FSDP1 model; returns the same model.

    Raises:
        ConfigError: it is no FSDP1 model, it has no module of a named class, or one is checkpointed already.
    """
    if not isinstance(model, FullyShardedDataParallel):
        raise ConfigError(
            f"activation_checkpointed_fsdp1 is for models that are fsdp1_wrapped, not for a {type(model).__name__}. "
            "Use activation_checkpointed."
        )
    names = activation_checkpointing_modules or []
    blocks = find_blocks(model, names, "activation_checkpointed_fsdp1: activation_checkpointing_modules")
    _refuse_wrapped(blocks.items())
    for name, block in reversed(blocks.items()):  # blocks within blocks first, while their names are still right
        model.set_submodule(name, _checkpointed(block, preserve_rng_state=None, saved_keys=[]))
    return model


def _find_layers(model: nn.Module, layers_fqn: str) -> nn.Module:
    modules = dict(model.named_modules())
    layers = modules.get(layers_fqn)
    if isinstance(layers, nn.ModuleDict | nn.ModuleList):
        return layers
    holders = [name for name, module in modules.items() if name and isinstance(module, nn.ModuleDict | nn.ModuleList)]
    given = "no module of the model" if layers is None else f"of class {type(layers).__name__}"
    raise ConfigError(
        f"activation_checkpointed: layers_fqn {layers_fqn!r} is {given}, but has to be the name of a ModuleDict or "
        f"ModuleList. The model has: {', '.join(holders) or 'none'}."
    )


def _refuse_wrapped(layers: Iterable[tuple[str, nn.Module]]) -> None:
    for name, layer in layers:
        if is_wrapped(layer, CHECKPOINTED):
            raise ConfigError(f"{name} has activation checkpointing already. Apply it once.")
        if is_wrapped(layer, COMPILED):
            # What is compiled hides its operations, and would keep activations of its own.
            raise ConfigError(f"{name} is compiled already. Apply activation checkpointing first, then `compiled`.")


def _checkpointed(layer: nn.Module, preserve_rng_state: bool | None, saved_keys: list[SaveableOps]) -> nn.Module:
    options: dict[str, Any] = {
        "preserve_rng_state": _has_dropout(layer) if preserve_rng_state is None else preserve_rng_state
    }
    if saved_keys:
        options["context_fn"] = _selective_contexts({operator.attrgetter(key.value)(torch) for key in saved_keys})
    return checkpoint_wrapper(layer, **options)


def _has_dropout(layer: nn.Module) -> bool:
    """Whether a module within drops anything: a dropout layer, or one with a number called `dropout`, or similar."""
    return any(
        (isinstance(module, _DropoutNd) and module.p > 0)
        or any("dropout" in name and _is_positive(value) for name, value in vars(module).items())
        for module in layer.modules()
    )


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _selective_contexts(saved: set[Operation]) -> Callable[[], Any]:
    """Maker of the contexts of a layer's forward pass and of its recomputation; counts anew in every forward pass."""

    def make_contexts() -> Any:
        num_products = 0

        def decide(context: Any, operation: Operation, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            nonlocal num_products
            if operation is torch.ops.aten.mm.default:
                num_products += 1
                if num_products % 2 == 0:
                    return CheckpointPolicy.PREFER_RECOMPUTE
            is_kept = operation in saved and not _drops(operation, args, kwargs)
            return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(decide)

    return make_contexts


def _drops(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation draws random numbers; left out of the recomputation, all later draws would be others."""
    names = [argument.name for argument in operation._schema.arguments]
    return bool({**dict(zip(names, args, strict=False)), **kwargs}.get("dropout_p", 0.0) > 0)
