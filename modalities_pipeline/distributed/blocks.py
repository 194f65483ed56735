"""Blocks of a model, found by the names of their classes, also where something is wrapped around them."""

from collections.abc import Iterable

from torch import nn

from modalities_pipeline.exceptions import ConfigError

COMPILED = "_orig_mod"
CHECKPOINTED = "_checkpoint_wrapped_module"
_WRAPPED = (COMPILED, CHECKPOINTED)


def find_blocks(model: nn.Module, block_names: Iterable[str], component: str) -> dict[str, nn.Module]:
    """Name in the model -> module for all modules below `model` of the named classes, in the model's order.

    torch.compile and activation checkpointing put a module around a block; the outermost of these is then the block,
    so that sharding and compilation take in all of it. A module that is used in several places has several names.

    Args:
        block_names: names of classes; `component` is who was given them, for the message.

    Raises:
        ConfigError: there is no module of a named class, also not in the model of which this is a pipeline's stage.
    """
    names = list(block_names)
    places = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if name and name.rpartition(".")[2] not in _WRAPPED
    }
    classes = {name: _class_name(module) for name, module in places.items()}
    # a stage of a pipeline may lack blocks that others have
    available = sorted({*classes.values(), *getattr(model, "classes_of_whole_model", ())})
    unknown = [name for name in names if name not in available]
    if unknown:
        raise ConfigError(
            f"{component}: the model has no {', '.join(unknown)}. It has: {', '.join(available) or 'no modules'}."
        )
    return {name: module for name, module in places.items() if classes[name] in names}


def is_wrapped(module: nn.Module, attribute: str) -> bool:
    """Whether compilation (`COMPILED`) or activation checkpointing (`CHECKPOINTED`) has been put around a module."""
    while (inner := _inner(module)) is not None:
        if attribute in module._modules:
            return True
        module = inner
    return False


def _class_name(module: nn.Module) -> str:
    """Of the module within all wrappers."""
    while (inner := _inner(module)) is not None:
        module = inner
    return type(module).__name__


def _inner(module: nn.Module) -> nn.Module | None:
    # not by the wrappers' classes: sharding changes them, and importing the compiler's takes a second
    return next((module._modules[name] for name in _WRAPPED if name in module._modules), None)
