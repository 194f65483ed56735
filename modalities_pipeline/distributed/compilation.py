"""Compilation of a model's blocks by torch.compile."""

from typing import Any

import torch
from torch import nn

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.distributed.blocks import COMPILED, find_blocks, is_wrapped
from modalities_pipeline.exceptions import ConfigError, ModelStateError


@for_each_part("model")
def get_compiled_model(
    model: nn.Module, block_names: list[str], fullgraph: bool | None = True, debug: bool | None = False
) -> nn.Module:
    """Put a compiled block in the place of each block of the named classes; returns the same model.

    Blocks are compiled at their first forward pass, equal ones once. A block with activation checkpointing is compiled
    together with it. Parameter names get `_orig_mod.`, which state dicts of torch.distributed.checkpoint leave out.

    Args:
        model: one model, or a list of the parts of one.
        block_names: class names.
        fullgraph: refuse (at the first forward pass) a block that cannot be one graph.
        debug: let the compiler write down what it does, in the folder torch_compile_debug.

    Raises:
        ConfigError: the model has no module of a named class, or a block is compiled already.
        ModelStateError: a block is used in several places, of which one alone cannot be replaced.
    """
    blocks = find_blocks(model, block_names, "compiled: block_names")
    _refuse_shared(blocks)
    options: Any = {"trace.enabled": True} if debug else None
    for name, block in reversed(blocks.items()):  # blocks within blocks first, while their names are still right
        if is_wrapped(block, COMPILED):
            raise ConfigError(f"compiled: {name} is compiled already. Compile a model once.")
        compiled: Any = torch.compile(block, fullgraph=bool(fullgraph), options=options)
        model.set_submodule(name, compiled)
    return model


def _refuse_shared(blocks: dict[str, nn.Module]) -> None:
    places: dict[nn.Module, list[str]] = {}
    for name, block in blocks.items():
        places.setdefault(block, []).append(name)
    for block, names in places.items():
        if len(names) > 1:
            raise ModelStateError(
                f"compiled: {' and '.join(names)} are one and the same {type(block).__name__}. Only blocks that are "
                "used in one place can be compiled."
            )
