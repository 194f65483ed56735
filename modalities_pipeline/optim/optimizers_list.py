"""The optimizers of several model parts as one, and the flat state of optimizers by the names of parameters."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

from modalities_pipeline.exceptions import CheckpointingError, OptimizerError

_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


class OptimizersList(Optimizer):
    """One optimizer for each part of a model that is split for a pipeline, used as if they were one.

    A scheduler is built for each of `optimizers` (see `SchedulerList`). Their momenta are in their own `state`.

    Attributes:
        model_parts, optimizers: part i is trained by optimizer i.
        param_groups: the groups of all optimizers, in order.
    """

    def __init__(self, model_parts: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        """Join optimizers.

        Raises:
            OptimizerError: there are none, or not as many as model parts.
        """
        if not optimizers or len(model_parts) != len(optimizers):
            raise OptimizerError(
                f"There are {len(model_parts)} model parts and {len(optimizers)} optimizers. Give one optimizer for "
                "each part."
            )
        self.model_parts = list(model_parts)
        self.optimizers = list(optimizers)
        super().__init__(self._joint_groups(), {})

    def _joint_groups(self) -> list[dict[str, Any]]:
        """The groups themselves, so that a changed learning rate is one for both."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every optimizer; the result of `closure`, which is called once, before them."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for optimizer in self.optimizers:
            optimizer.step()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parts."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The state of all optimizers as `get_flat_state` gives it."""
        return get_flat_state(self.model_parts, self.optimizers)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; raises as `set_flat_state_`."""
        set_flat_state_(self.model_parts, self.optimizers, state_dict)
        self.param_groups = self._joint_groups()


def get_flat_state(model_parts: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> dict[str, Any]:
    """`state.<parameter>.<name>` and `param_groups.<parameter>.<option>` of all parts, as checkpoints hold them.

    Optimizers that have made no step get a state of zeros first.

    Raises:
        CheckpointingError: two parts have a parameter of the same name.
    """
    states = [
        get_optimizer_state_dict(part, optimizer, options=_FLAT)
        for part, optimizer in zip(model_parts, optimizers, strict=True)
    ]
    return merge_disjoint(states)


def set_flat_state_(
    model_parts: Sequence[nn.Module], optimizers: Sequence[Optimizer], state_dict: dict[str, Any]
) -> None:
    """Take over a flat state in place; entries of parameters that no part has are left aside.

    Raises:
        CheckpointingError: options or momenta of a parameter are missing.
    """
    for part, optimizer in zip(model_parts, optimizers, strict=True):
        wanted = get_optimizer_state_dict(part, optimizer, options=_FLAT)
        missing = sorted(wanted.keys() - state_dict.keys())
        if missing:
            raise CheckpointingError(f"The optimizer's state lacks {len(missing)} entries, such as {missing[0]}.")
        set_optimizer_state_dict(part, optimizer, optim_state_dict=state_dict, options=_FLAT)


def merge_disjoint(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One dict of all; `CheckpointingError` if two have a key in common."""
    for first, second in itertools.combinations(states, 2):
        common = sorted(first.keys() & second.keys())
        if common:
            raise CheckpointingError(
                f"Two model parts have {', '.join(common[:3])}{', ...' if len(common) > 3 else ''}. Names have to be "
                "unique over the parts, or a checkpoint would hold only one of them."
            )
    return {key: value for state in states for key, value in state.items()}
