"""Which parameters of gpt2 and CoCa the initialisation `composed` treats alike."""

from dataclasses import dataclass

from modalities_pipeline.models.initialization_configs import SupportWeightInitModels
from modalities_pipeline.models.initialization_rules import InitializationRule, normal, zeros

_GPT2_BLOCK = r"transformer\.h\.\d+\."
_COCA_BLOCK = r"(vision_encoder\.blocks|(text|multimodal)_decoder\.transformer\.h)\.\d+\."


@dataclass(frozen=True)
class ParameterNames:
    """Patterns of whole names, without what wrappers put in.

    Attributes:
        layers: linears and convolutions, up to the last dot; `weight` or `bias` follows.
        embeddings: weights of embeddings, and what is drawn as they are.
        residual_outputs: weights of the projections whose output is added to the residual stream.
        constant_rules: how parameters are filled on which no setting has a bearing.
    """

    layers: str
    embeddings: str
    residual_outputs: str
    constant_rules: tuple[InitializationRule, ...] = ()


PARAMETER_NAMES = {
    SupportWeightInitModels.GPT2: ParameterNames(
        layers=_GPT2_BLOCK + r"(attn\.(q_attn|k_attn|v_attn|c_proj)|mlp\.(W|V|W_2|c_fc|c_proj))\.",
        embeddings=r"transformer\.(wte|wpe|lm_head)\.weight",
        residual_outputs=_GPT2_BLOCK + r"(attn\.c_proj|mlp\.(W_2|c_proj))\.weight",
    ),
    SupportWeightInitModels.COCA: ParameterNames(
        layers=rf"(vision_encoder\.embedding_fn\.conv|attn_pool\.attn\.(w[qkv]|c_proj)|{_COCA_BLOCK}"
        r"((attention|attn|cross_attn)\.(w[qkv]|c_proj)|mlp(_2)?\.(fc1|fc2|W|V|W_2)))\.",
        embeddings=r"text_decoder\.transformer\.(wte|wpe)\.weight|text_decoder\.cls_token"
        r"|vision_encoder\.positional_embedding_fn\.weight|multimodal_decoder\.lm_head\.weight",
        residual_outputs=_COCA_BLOCK + r"((attention|attn|cross_attn)\.c_proj|mlp(_2)?\.(fc2|W_2))\.weight",
        constant_rules=(
            InitializationRule("vision_queries", normal(0.0, 1.0)),
            InitializationRule(r"vision_encoder\.embedding_fn\.cls_token", zeros),
        ),
    ),
}
