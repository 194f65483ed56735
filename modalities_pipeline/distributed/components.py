"""Meshes, models spread over ranks and pipelines, as rows of the table of components."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import (
    DEVICE_MESH,
    FSDP1_MODULE,
    FSDP2_MODULE,
    MODULE,
    NUMBER,
    PIPELINE,
    STAGES_GENERATOR,
)

_DISTRIBUTED = "modalities_pipeline.distributed"
_CONFIGS = f"{_DISTRIBUTED}.configs"


def _pipeline(variant_key: str, config: str, interface: str | None, description: str) -> ComponentEntity:
    config = f"{_DISTRIBUTED}.pipeline_configs:{config}"
    return ComponentEntity("pipeline", variant_key, None, config, interface, description)


COMPONENTS: list[ComponentEntity] = [
    ComponentEntity(
        "device_mesh",
        "default",
        f"{_DISTRIBUTED}.mesh:get_device_mesh",
        f"{_CONFIGS}:DeviceMeshConfig",
        DEVICE_MESH,
        "arranges the processes of a run for data, tensor, pipeline and context parallelism",
    ),
    ComponentEntity(
        "number_conversion",
        "parallel_degree",
        f"{_DISTRIBUTED}.mesh:get_parallel_degree",
        f"{_CONFIGS}:ParallelDegreeConfig",
        NUMBER,
        "number of ranks along dimensions of a device mesh",
    ),
    ComponentEntity(
        "model",
        "fsdp2_wrapped",
        f"{_DISTRIBUTED}.fsdp:get_fsdp2_wrapped_model",
        f"{_CONFIGS}:FSDP2WrappedModelConfig",
        FSDP2_MODULE,
        "splits a model's parameters over the ranks (FSDP2, torch's fully_shard)",
    ),
    ComponentEntity(
        "model",
        "fsdp1_wrapped",
        None,
        f"{_CONFIGS}:FSDP1WrappedModelConfig",
        FSDP1_MODULE,
        "splits a model's parameters over the ranks (FSDP1, torch's FullyShardedDataParallel)",
        ("fsdp_wrapped",),
    ),
    ComponentEntity(
        "model",
        "gpt2_tp",
        None,
        f"{_CONFIGS}:GPT2ModelTPConfig",
        MODULE,
        "splits the matrices of a gpt2 model over the ranks (tensor parallelism, https://arxiv.org/abs/1909.08053)",
    ),
    _pipeline("staged", "StagedPipelineConfig", PIPELINE, "the stages of this rank, cut out of a whole model"),
    _pipeline(
        "scheduled",
        "ScheduledPipelineConfig",
        PIPELINE,
        "adds the order in which micro batches pass through a pipeline",
    ),
    _pipeline("selector", "ComponentSelectorFromPipelineConfig", None, "stages, models or schedule of a pipeline"),
    _pipeline("builder", "PipelineConfig", PIPELINE, "a pipeline from stages and the wrapped models in them"),
    ComponentEntity(
        "stages_generator",
        "gpt2_stages_generator",
        None,
        f"{_DISTRIBUTED}.pipeline_configs:GPT2LLMStagesGeneratorConfig",
        STAGES_GENERATOR,
        "cuts a gpt2 model into stages of about the same work",
    ),
]
