"""Models, norms and initial weights, as rows of the table of components."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import MODEL_INITIALIZATION, MODULE

_MODELS = "modalities_pipeline.models"


def _model(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    """Names of `builder` and `config` are "module:Name" with the module of this folder."""
    return ComponentEntity("model", variant_key, f"{_MODELS}.{builder}", f"{_MODELS}.{config}", MODULE, description)


def _norm(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    return ComponentEntity("layer_norm", variant_key, builder, f"{_MODELS}.norm_configs:{config}", MODULE, description)


def _initialization(variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    types = f"{_MODELS}.initialization:{builder}", f"{_MODELS}.initialization_configs:{config}"
    return ComponentEntity("model_initialization", variant_key, *types, MODEL_INITIALIZATION, description)


COMPONENTS: list[ComponentEntity] = [
    _model(
        "gpt2",
        "gpt2:build_gpt2",
        "configs:GPT2LLMConfig",
        "decoder-only transformer, in the style of GPT-2 or Llama by its settings",
    ),
    _model(
        "huggingface_pretrained_model",
        "huggingface_model:build_huggingface_pretrained_model",
        "huggingface_configs:HuggingFacePretrainedModelConfig",
        "language model of Hugging Face transformers, with its weights",
    ),
    _model(
        "coca",
        "coca:build_coca",
        "coca_configs:CoCaConfig",
        "CoCa, contrastive captioner of images and texts (https://arxiv.org/abs/2205.01917)",
    ),
    _model(
        "model_initialized",
        "initialization:get_initialized_model",
        "initialization_configs:WeightInitializedModelConfig",
        "gives a model its initial weights, and memory if it is on the meta device",
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
]
