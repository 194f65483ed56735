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


def _pipeline(variant_key: str, builder: str, config: str, interface: str | None, description: str) -> ComponentEntity:
    types = f"{_DISTRIBUTED}.pipeline_parallel:{builder}", f"{_DISTRIBUTED}.pipeline_configs:{config}"
    return ComponentEntity("pipeline", variant_key, *types, interface, description)


def _wrapper(variant_key: str, builder: str, config: str, interface: str, description: str) -> ComponentEntity:
    """Names of `builder` and `config` are "module:Name" with the module of this folder."""
    types = f"{_DISTRIBUTED}.{builder}", f"{_DISTRIBUTED}.{config}"
    return ComponentEntity("model", variant_key, *types, interface, description)


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
    _wrapper(
        "fsdp2_wrapped",
        "fsdp:get_fsdp2_wrapped_model",
        "configs:FSDP2WrappedModelConfig",
        FSDP2_MODULE,
        "splits a model's parameters over the ranks (FSDP2, torch's fully_shard)",
    ),
    ComponentEntity(
        "model",
        "fsdp1_wrapped",
        f"{_DISTRIBUTED}.fsdp1:get_fsdp1_wrapped_model",
        f"{_CONFIGS}:FSDP1WrappedModelConfig",
        FSDP1_MODULE,
        "splits a model's parameters over the ranks (FSDP1, torch's FullyShardedDataParallel)",
        ("fsdp_wrapped",),
    ),
    _wrapper(
        "gpt2_tp",
        "tensor_parallel:get_gpt2_tensor_parallelized_model",
        "configs:GPT2ModelTPConfig",
        MODULE,
        "splits the matrices of a gpt2 model over the ranks (tensor parallelism, https://arxiv.org/abs/1909.08053)",
    ),
    _wrapper(
        "activation_checkpointed",
        "activation_checkpointing:get_activation_checkpointed_model",
        "wrapping_configs:ActivationCheckpointedModelConfig",
        MODULE,
        "computes activations again in the backward pass: less memory, more time (https://arxiv.org/abs/1604.06174)",
    ),
    _wrapper(
        "activation_checkpointed_fsdp1",
        "activation_checkpointing:get_activation_checkpointed_fsdp1_model",
        "wrapping_configs:FSDP1ActivationCheckpointedModelConfig",
        MODULE,
        "computes activations of an FSDP1 model again in the backward pass",
    ),
    _wrapper(
        "compiled",
        "compilation:get_compiled_model",
        "wrapping_configs:CompiledModelConfig",
        MODULE,
        "compiles blocks of a model with torch.compile",
    ),
    _pipeline(
        "staged",
        "get_staged_pipeline",
        "StagedPipelineConfig",
        PIPELINE,
        "the stages of this rank, cut out of a whole model",
    ),
    _pipeline(
        "scheduled",
        "get_scheduled_pipeline",
        "ScheduledPipelineConfig",
        PIPELINE,
        "adds the order in which micro batches pass through a pipeline",
    ),
    _pipeline(
        "selector",
        "select_from_pipeline",
        "ComponentSelectorFromPipelineConfig",
        None,
        "stages, models or schedule of a pipeline",
    ),
    _pipeline(
        "builder",
        "build_pipeline",
        "PipelineConfig",
        PIPELINE,
        "a pipeline from stages and the wrapped models in them",
    ),
    ComponentEntity(
        "stages_generator",
        "gpt2_stages_generator",
        f"{_DISTRIBUTED}.stages_generator:GPT2LLMStagesGenerator",
        f"{_DISTRIBUTED}.pipeline_configs:GPT2LLMStagesGeneratorConfig",
        STAGES_GENERATOR,
        "cuts a gpt2 model into stages of about the same work",
    ),
]
