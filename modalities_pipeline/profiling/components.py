"""The components of this folder, as rows of the table of components. Imports nothing but the row."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import STEPPABLE_COMPONENT, STEPPABLE_PROFILER

_FOLDER = "modalities_pipeline.profiling"


def _profiler(variant_key: str, module: str, name: str, description: str) -> ComponentEntity:
    return ComponentEntity(
        "steppable_profiler",
        variant_key,
        f"{_FOLDER}.{module}:{name}",
        f"{_FOLDER}.configs:{name}Config",
        STEPPABLE_PROFILER,
        description,
    )


COMPONENTS: list[ComponentEntity] = [
    ComponentEntity(
        "steppable_component",
        "forward_pass",
        f"{_FOLDER}.steppable:SteppableForwardPass",
        f"{_FOLDER}.configs:SteppableForwardPassConfig",
        STEPPABLE_COMPONENT,
        "One forward pass a step; with a loss also the backward pass, with an optimizer also its step",
    ),
    _profiler(
        "kernel_tracing",
        "kernel_tracing",
        "SteppableKernelProfiler",
        "Records what runs on CPU and GPU: a trace for chrome://tracing and a summary",
    ),
    _profiler(
        "memory_tracing",
        "memory_tracing",
        "SteppableMemoryProfiler",
        "Records GPU memory: a snapshot for pytorch.org/memory_viz; needs a GPU",
    ),
    _profiler("combined", "profilers", "SteppableCombinedProfiler", "Several profilers at once"),
    _profiler("no_profiler", "profilers", "SteppableNoProfiler", "Records nothing"),
]
