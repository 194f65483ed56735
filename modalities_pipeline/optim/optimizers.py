"""Adam and AdamW with weight decay per named group of parameters."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from modalities_pipeline.config.component import only_part
from modalities_pipeline.exceptions import OptimizerError
from modalities_pipeline.models.initialization import normalized_name
from modalities_pipeline.models.model import NNModel

logger = logging.getLogger(__name__)


def get_adam(
    lr: float,
    wrapped_model: nn.Module | list[nn.Module],
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    weight_decay_groups_excluded: list[str],
    foreach: bool | None = None,
    fused: bool | None = None,
) -> Optimizer:
    """torch's Adam for a plain or FSDP2 model; see `get_parameter_groups` for the errors."""
    groups = get_parameter_groups(only_part(wrapped_model, "adam"), weight_decay, weight_decay_groups_excluded)
    return Adam(groups, lr=lr, betas=betas, eps=eps, foreach=foreach, fused=fused)


def get_adam_w(
    lr: float,
    wrapped_model: nn.Module | list[nn.Module],
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    weight_decay_groups_excluded: list[str],
    foreach: bool | None = None,
    fused: bool | None = None,
) -> Optimizer:
    """torch's AdamW for a plain or FSDP2 model; see `get_parameter_groups` for the errors."""
    groups = get_parameter_groups(only_part(wrapped_model, "adam_w"), weight_decay, weight_decay_groups_excluded)
    return AdamW(groups, lr=lr, betas=betas, eps=eps, foreach=foreach, fused=fused)


def get_parameter_groups(model: nn.Module, weight_decay: float, excluded: list[str]) -> list[dict[str, Any]]:
    """Optimizer groups: [decayed, not decayed], or a single one if there is no decay or nothing is excluded.

    `excluded` names groups of the model's `weight_decay_groups`. Frozen parameters are left out.

    Raises:
        OptimizerError: nothing to train; an unknown group; a parameter in no or several groups; an empty side.
    """
    trainable = {
        normalized_name(name): parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    if not trainable:
        raise OptimizerError("The model has no trainable parameters.")
    if weight_decay == 0 or not excluded:
        _log_group("all", trainable, weight_decay)
        return [{"params": list(trainable.values()), "weight_decay": weight_decay}]
    patterns = model.weight_decay_groups if isinstance(model, NNModel) else {}
    unknown = [name for name in excluded if name not in patterns]
    if unknown:
        raise OptimizerError(
            f"weight_decay_groups_excluded: the model has no group {', '.join(unknown)}. Its groups: "
            f"{', '.join(patterns) or 'none'}."
        )
    groups = _assign(list(trainable), patterns)
    sides: dict[str, dict[str, nn.Parameter]] = {"with_weight_decay": {}, "without_weight_decay": {}}
    for group, names in groups.items():
        side = "without_weight_decay" if group in excluded else "with_weight_decay"
        sides[side].update({name: trainable[name] for name in names})
    empty = [side for side, parameters in sides.items() if not parameters]
    if empty:
        raise OptimizerError(
            f"No parameter is left {empty[0].replace('_', ' ')}. Change weight_decay_groups_excluded, or set "
            "weight_decay to 0."
        )
    result = []
    for side, decay in (("with_weight_decay", weight_decay), ("without_weight_decay", 0.0)):
        _log_group(side, sides[side], decay)
        result.append({"params": list(sides[side].values()), "weight_decay": decay})
    return result


def _assign(names: list[str], patterns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Group -> names of its parameters; every name must fall into exactly one group."""
    groups = {
        group: [name for name in names if any(re.search(pattern, name) for pattern in group_patterns)]
        for group, group_patterns in patterns.items()
    }
    for name in names:
        matching = [group for group, members in groups.items() if name in members]
        if len(matching) != 1:
            found = " and ".join(matching) or "no weight decay group"
            raise OptimizerError(
                f"Parameter {name} is in {found}; it must be in exactly one. Mend the model's weight_decay_groups, or "
                "exclude nothing."
            )
    return groups


def _log_group(name: str, parameters: Mapping[str, nn.Parameter], weight_decay: float) -> None:
    count = sum(parameter.numel() for parameter in parameters.values())
    logger.info("Optimizer group %s: %d tensors, %d parameters, decay %g.", name, len(parameters), count, weight_decay)
