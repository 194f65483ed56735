"""Adam and AdamW with weight decay per named group of parameters."""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Adam, AdamW, Optimizer
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.exceptions import OptimizerError
from modalities_pipeline.models.model import NNModel
from modalities_pipeline.models.parameters import normalized_name
from modalities_pipeline.optim.optimizers_list import OptimizersList

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
    """torch's Adam for a model, sharded or not, or an `OptimizersList` for its parts; weight decay adds to gradients.

    Raises:
        OptimizerError: as `get_parameter_groups`, or `fused` does not work with a parameter.
    """
    options = {"lr": lr, "betas": betas, "eps": eps, "foreach": foreach, "fused": fused}
    is_part = isinstance(wrapped_model, list)
    return _build(Adam, wrapped_model, is_part, weight_decay, weight_decay_groups_excluded, options)


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
    """torch's AdamW for a model, sharded or not, or an `OptimizersList` for its parts; raises as `get_adam`."""
    options = {"lr": lr, "betas": betas, "eps": eps, "foreach": foreach, "fused": fused}
    is_part = isinstance(wrapped_model, list)
    return _build(AdamW, wrapped_model, is_part, weight_decay, weight_decay_groups_excluded, options)


@for_each_part("model", combine=OptimizersList)
def _build(
    optimizer_class: type[Adam],
    model: nn.Module | list[nn.Module],
    is_part: bool,
    weight_decay: float,
    excluded: list[str],
    options: dict[str, Any],
) -> Optimizer:
    assert isinstance(model, nn.Module)
    groups = get_parameter_groups(model, weight_decay, excluded, is_part)
    if options["fused"]:
        _require_fused_kernels(model)
    return optimizer_class(groups, **options)


def get_parameter_groups(
    model: nn.Module, weight_decay: float, excluded: list[str], is_part: bool = False
) -> list[dict[str, Any]]:
    """Optimizer groups: [decayed, not decayed], or a single one if there is no decay or nothing is excluded.

    Frozen parameters are left out; tied ones count once, by their first name (gpt2's tied head is "embedding"). All
    ranks get the same groups: a parameter stays in also where its local shard is empty, so that every rank's checkpoint
    has the same keys. As in Modalities, gpt2's biases and the gains of its query and key norms are "linear".

    Args:
        model: plain, FSDP1, FSDP2 or tensor parallel; with memory.
        weight_decay: of the parameters that are not excluded.
        excluded: names of groups in the model's `weight_decay_groups`.
        is_part: whether the rest of the model is on other ranks. Its groups may then be empty, and so may one of the
            two sides, which is left out.

    Raises:
        OptimizerError: nothing to train; parameters on the meta device; an unknown group, or one of which the model
            has no parameter; a parameter in no or several groups; an empty side.
    """
    trainable = {
        normalized_name(name): parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    if not trainable:
        raise OptimizerError(f"The model{' part' if is_part else ''} has no trainable parameters.")
    _refuse_meta(trainable)
    patterns = _weight_decay_groups(model)
    _refuse_unknown(excluded, patterns)
    if weight_decay == 0 or not excluded:
        _log_group("all", trainable, weight_decay)
        return [{"params": list(trainable.values()), "weight_decay": weight_decay}]
    if not is_part:
        _refuse_empty_groups(patterns, model)
    sides: dict[str, dict[str, nn.Parameter]] = {"with_weight_decay": {}, "without_weight_decay": {}}
    for group, names in _assign(trainable, patterns).items():
        side = "without_weight_decay" if group in excluded else "with_weight_decay"
        sides[side].update({name: trainable[name] for name in names})
    empty = [side for side, parameters in sides.items() if not parameters]
    if empty and not is_part:
        raise OptimizerError(
            f"No parameter is left {empty[0].replace('_', ' ')}. Change weight_decay_groups_excluded, or set "
            "weight_decay to 0."
        )
    result = []
    for side, decay in (("with_weight_decay", weight_decay), ("without_weight_decay", 0.0)):
        if sides[side]:
            _log_group(side, sides[side], decay)
            result.append({"params": list(sides[side].values()), "weight_decay": decay})
    return result


def _weight_decay_groups(model: nn.Module) -> Mapping[str, list[str]]:
    """Those of the model, or of the model inside, as FSDP1 and torch.compile wrap it in a module of theirs."""
    return next((module.weight_decay_groups for module in model.modules() if isinstance(module, NNModel)), {})


def _refuse_meta(parameters: Mapping[str, nn.Parameter]) -> None:
    on_meta = [name for name, parameter in parameters.items() if parameter.is_meta]
    if on_meta:
        raise OptimizerError(
            f"{len(on_meta)} parameters are on the meta device, such as {on_meta[0]}, and have no memory yet. Give the "
            "optimizer the model that model_initialized returns."
        )


def _refuse_unknown(excluded: Iterable[str], patterns: Mapping[str, list[str]]) -> None:
    unknown = [name for name in excluded if name not in patterns]
    if unknown:
        raise OptimizerError(
            f"weight_decay_groups_excluded: the model has no group {', '.join(unknown)}. Its groups: "
            f"{', '.join(patterns) or 'none'}."
        )


def _refuse_empty_groups(patterns: Mapping[str, list[str]], model: nn.Module) -> None:
    """Also frozen parameters, and the second names of tied ones, show that a pattern is no slip."""
    names = [normalized_name(name) for name, _ in model.named_parameters(remove_duplicate=False)]
    empty = [group for group, group_patterns in patterns.items() if not _matching(names, group_patterns)]
    if empty:
        raise OptimizerError(
            f"No parameter of the model is in the group {empty[0]} ({', '.join(patterns[empty[0]])}). Mend the model's "
            "weight_decay_groups, or exclude nothing."
        )


def _assign(names: Iterable[str], patterns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Group -> names of its parameters; every name must fall into exactly one group."""
    names = list(names)
    groups = {group: _matching(names, group_patterns) for group, group_patterns in patterns.items()}
    for name in names:
        matching = [group for group, members in groups.items() if name in members]
        if len(matching) != 1:
            found = " and ".join(matching) or "no weight decay group"
            raise OptimizerError(
                f"Parameter {name} is in {found}; it must be in exactly one. Mend the model's weight_decay_groups, or "
                "exclude nothing."
            )
    return groups


def _matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    return [name for name in names if any(re.search(pattern, name) for pattern in patterns)]


def _require_fused_kernels(model: nn.Module) -> None:
    """torch itself would complain at the first step only."""
    devices = _get_fused_kernels_supported_devices()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not (parameter.is_floating_point() and parameter.device.type in devices):
            raise OptimizerError(
                f"fused: there is no kernel for the parameter {name} ({parameter.dtype} on {parameter.device}). Set "
                "fused to null."
            )


def _log_group(name: str, parameters: Mapping[str, nn.Parameter], weight_decay: float) -> None:
    count = sum(parameter.numel() for parameter in parameters.values())
    logger.info("Optimizer group %s: %d tensors, %d parameters, decay %g.", name, len(parameters), count, weight_decay)
