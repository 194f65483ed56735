"""Stages of a pipeline, cut out of a whole model without copying a single weight."""

import copy

from torch import nn

from modalities_pipeline.exceptions import ConfigError


def cut_stages(model: nn.Module, stages: list[list[str]]) -> list[nn.Module]:
    """One model for each stage that has the stage's modules only, under the names that they have in the whole model.

    The modules are shared with `model`, which itself is not changed: it still has all of them, but what is done to a
    module of a stage (sharding, initialisation, training) is done to the whole model's module. The modules around
    them (the model itself, its lists of blocks) are copied without their content. Each part has an attribute
    `classes_of_whole_model`, names of classes, from which wrappers know a typo from a block that is in another part.

    Args:
        model: on the meta device, so that no rank needs memory for stages of others, or not.
        stages: names of the modules of each stage, none of which lies inside another.

    Raises:
        ConfigError: the model has no module of a name, a parameter is in no stage, or one is shared by two stages.
    """
    _check_stages(model, stages)
    names = {name for stage in stages for name in stage}
    around = {name.rsplit(".", depth)[0] for name in names for depth in range(1, name.count(".") + 1)}
    parts = [_part(model, set(stage), around) for stage in stages]
    for part in parts:
        vars(part)["classes_of_whole_model"] = frozenset(type(module).__name__ for module in model.modules())
    return parts


def _part(module: nn.Module, names: set[str], around: set[str], prefix: str = "") -> nn.Module:
    """A copy of `module` that has, of the modules below it, those in `names`; what is in `around` is copied, too."""
    part = copy.copy(module)
    # Hooks and other registries must not be shared: wrapping the part would wrap the whole model.
    part.__dict__ = {key: copy.copy(value) if isinstance(value, dict) else value for key, value in vars(module).items()}
    part._modules = {}
    for child_name, child in module._modules.items():
        name = f"{prefix}{child_name}"
        if name in names:
            part._modules[child_name] = child
        elif name in around and child is not None:
            part._modules[child_name] = _part(child, names, around, f"{name}.")
    return part


def _check_stages(model: nn.Module, stages: list[list[str]]) -> None:
    missing = [name for stage in stages for name in stage if not _has_module(model, name)]
    if missing:
        raise ConfigError(
            f"The stages_generator cuts out {', '.join(missing)}, but the model has no such module. Make its "
            "num_model_layers the model's n_layer."
        )
    first_names: dict[int, tuple[str, int]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        numbers = [number for number, stage in enumerate(stages) if _is_inside(name, stage)]
        if not numbers:
            raise ConfigError(
                f"Parameter {name} of the model is in no stage. Make num_model_layers of the stages_generator the "
                "model's n_layer."
            )
        first_name, first_number = first_names.setdefault(id(parameter), (name, numbers[0]))
        if first_number != numbers[0]:
            raise ConfigError(
                f"Parameters {first_name} and {name} are the same, but belong to different stages of the pipeline. Set "
                "use_weight_tying to false."
            )


def _has_module(model: nn.Module, name: str) -> bool:
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True


def _is_inside(parameter_name: str, stage: list[str]) -> bool:
    return any(parameter_name.startswith(f"{module_name}.") for module_name in stage)
