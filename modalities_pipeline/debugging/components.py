"""What watches a model, as rows of the table of components."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import DEBUGGING, MODULE, REMOVABLE_HANDLE

_DEBUGGING = "modalities_pipeline.debugging"
_CONFIGS = f"{_DEBUGGING}.configs"


def _hook(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    types = f"{_DEBUGGING}.hooks:{builder}", f"{_CONFIGS}:{config}"
    return ComponentEntity("model_debugging_hook", variant_key, *types, REMOVABLE_HANDLE, description)


COMPONENTS: list[ComponentEntity] = [
    ComponentEntity(
        "model",
        "debugging_enriched",
        f"{_DEBUGGING}.tensor_statistics:get_debugging_enriched_model",
        f"{_CONFIGS}:DebuggingEnrichedModelConfig",
        MODULE,
        "writes statistics of a model's activations, parameters and gradients to a file",
    ),
    _hook(
        "nan_hook",
        "register_nan_hooks",
        "NaNHookConfig",
        "logs, or raises an error for, each module with a NaN in its inputs or outputs",
    ),
    _hook(
        "print_forward_hook",
        "register_print_forward_hooks",
        "PrintForwardHookConfig",
        "prints inputs and outputs of every module",
    ),
    ComponentEntity(
        "debugging",
        "settings",
        f"{_DEBUGGING}.settings:Debugging",
        f"{_CONFIGS}:DebuggingConfig",
        DEBUGGING,
        "holds debugging hooks, and makes a run deterministic",
    ),
]
