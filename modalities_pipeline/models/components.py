"""Models, norms, initial weights and what watches a model, as rows of the table of components."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import DEBUGGING, MODEL_INITIALIZATION, MODULE, REMOVABLE_HANDLE

_MODELS = "modalities_pipeline.models"


def _model(variant_key: str, builder: str | None, config: str, description: str) -> ComponentEntity:
    """Names of `builder` and `config` are "module:Name" with the module of this folder."""
    component_type = None if builder is None else f"{_MODELS}.{builder}"
    return ComponentEntity("model", variant_key, component_type, f"{_MODELS}.{config}", MODULE, description)


def _norm(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    return ComponentEntity("layer_norm", variant_key, builder, f"{_MODELS}.norm_configs:{config}", MODULE, description)


def _initialization(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    types = f"{_MODELS}.initialization:{builder}", f"{_MODELS}.initialization_configs:{config}"
    return ComponentEntity("model_initialization", variant_key, *types, MODEL_INITIALIZATION, description)


def _hook(variant_key: str, config: str, description: str) -> ComponentEntity:
    config = f"{_MODELS}.debugging_configs:{config}"
    return ComponentEntity("model_debugging_hook", variant_key, None, config, REMOVABLE_HANDLE, description)


COMPONENTS: list[ComponentEntity] = [
    _model(
        "gpt2",
        "gpt2:build_gpt2",
        "configs:GPT2LLMConfig",
        "decoder-only transformer, in the style of GPT-2 or Llama by its settings",
    ),
    _model(
        "huggingface_pretrained_model",
        None,
        "wrapping_configs:HuggingFacePretrainedModelConfig",
        "language model of Hugging Face transformers, with its weights",
    ),
    _model(
        "coca",
        None,
        "coca_configs:CoCaConfig",
        "CoCa, contrastive captioner of images and texts (https://arxiv.org/abs/2205.01917)",
    ),
    _model(
        "model_initialized",
        "initialization:get_initialized_model",
        "initialization_configs:WeightInitializedModelConfig",
        "gives a model its initial weights, and memory if it is on the meta device",
    ),
    _model(
        "activation_checkpointed",
        None,
        "wrapping_configs:ActivationCheckpointedModelConfig",
        "computes activations again in the backward pass: less memory, more time (https://arxiv.org/abs/1604.06174)",
    ),
    _model(
        "activation_checkpointed_fsdp1",
        None,
        "wrapping_configs:FSDP1ActivationCheckpointedModelConfig",
        "computes activations of an FSDP1 model again in the backward pass",
    ),
    _model("compiled", None, "wrapping_configs:CompiledModelConfig", "compiles blocks of a model with torch.compile"),
    _model(
        "debugging_enriched",
        None,
        "debugging_configs:DebuggingEnrichedModelConfig",
        "writes statistics of all tensors that pass through a model to a file",
    ),
    _norm(
        "layer_norm", "torch.nn:LayerNorm", "LayerNormConfig", "torch.nn.LayerNorm (https://arxiv.org/abs/1607.06450)"
    ),
    _norm(
        "rms_norm",
        f"{_MODELS}.layer_norms:RMSLayerNorm",
        "RMSLayerNormConfig",
        "RMS norm that may have a bias (https://arxiv.org/abs/1910.07467)",
    ),
    _norm("pytorch_rms_norm", "torch.nn:RMSNorm", "PytorchRMSLayerNormConfig", "torch.nn.RMSNorm"),
    _initialization(
        "composed",
        "get_composed_model_initializer",
        "ComposedModelInitializationConfig",
        "normal weights, by depth and for embeddings scaled if asked for",
    ),
    _initialization(
        "gpt2_llama3_like",
        "GPT2Llama3LikeInitializer",
        "GPT2Llama3LikeInitializationConfig",
        "weights as torchtitan's Llama 3 has them, for SwiGLU models without biases",
    ),
    _hook("nan_hook", "NaNHookConfig", "logs, or raises at, the first module in which a NaN appears"),
    _hook("print_forward_hook", "PrintForwardHookConfig", "prints inputs and outputs of every module"),
    ComponentEntity(
        "debugging",
        "settings",
        None,
        f"{_MODELS}.debugging_configs:DebuggingConfig",
        DEBUGGING,
        "holds debugging hooks, and makes a run deterministic",
    ),
]
