"""The state of an optimizer, by the names of the model's parameters: out of a file, and into an optimizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
from torch.optim import Optimizer

from modalities_pipeline.checkpointing.model_states import read_torch_file
from modalities_pipeline.exceptions import CheckpointingError
from modalities_pipeline.models.parameters import normalized_name

OptimizerState = Mapping[str, Any]


def read_optimizer_state(checkpoint_path: Path) -> OptimizerState:
    """{"state": parameter name -> its state, "param_groups": groups with the names in "params"}, on the CPU.

    Raises:
        CheckpointingError: there is no such file, or it is of another kind.
    """
    if not checkpoint_path.is_file():
        raise CheckpointingError(f"There is no checkpoint file {checkpoint_path}.")
    state = read_torch_file(checkpoint_path)
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= state.keys():
        raise CheckpointingError(f"{checkpoint_path} holds no state of an optimizer (state, param_groups).")
    return state


def refuse_other_parameters(state: OptimizerState, model: nn.Module, optimizer: Optimizer, source: Path) -> None:
    """Raise `CheckpointingError` unless a state is of the parameters that an optimizer changes; lists differences."""
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    wanted = {normalized_name(name) for name, parameter in model.named_parameters() if id(parameter) in own}
    stored = {name for group in state["param_groups"] for name in group["params"]}
    missing, surplus = sorted(wanted - stored), sorted(stored - wanted)
    differences = [f"it lacks {', '.join(map(str, missing))}"] if missing else []
    differences += [f"the optimizer lacks {', '.join(map(str, surplus))}"] if surplus else []
    if differences:
        raise CheckpointingError(f"{source} is not a checkpoint of this optimizer: {'; '.join(differences)}.")


def load_optimizer_state_(
    optimizer: Optimizer, model: nn.Module, state: OptimizerState, broadcast_from_rank0: bool
) -> None:
    """Put a state into an optimizer in place, on every rank its part; the settings of its groups are taken over, too.

    Args:
        optimizer: of `model`.
        state: as from `read_optimizer_state`; with `broadcast_from_rank0`, the other ranks give an empty dict.
    """
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast_from_rank0)
    set_optimizer_state_dict(model, optimizer, dict(state), options=options)
