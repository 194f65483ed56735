"""CoCa, contrastive captioner of images and texts (https://arxiv.org/abs/2205.01917)."""

from typing import Any

import torch
from torch import nn

from modalities_pipeline.models.coca_configs import CoCaAttentionConfig, CoCaConfig
from modalities_pipeline.models.model import NNModel, seeded_construction
from modalities_pipeline.models.multi_head_attention import AttentionType, MultiHeadAttention
from modalities_pipeline.models.text_decoder import MultiModalDecoder, TextDecoder
from modalities_pipeline.models.vision_transformer import VisionTransformer

_WEIGHT_DECAY_GROUPS = {
    "linear": [r"\.(attention|attn|cross_attn|mlp|mlp_2|conv|lm_head)\."],
    "embedding": [r"\.(wte|wpe|positional_embedding_fn)\.", r"\.cls_token$", "^vision_queries$"],
    "layernorm": [r"\.(norm1|norm2|ln_[1-4f])\."],
}


class AttentionPooling(nn.Module):
    """Learned queries look at the tokens of an image; both norms have eps `epsilon`, and biases if `bias`."""

    def __init__(
        self, n_embd: int, n_head: int, bias: bool, epsilon: float, attention_config: CoCaAttentionConfig | None
    ) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, eps=epsilon, bias=bias)
        self.attn = MultiHeadAttention(n_embd, n_head, AttentionType.CROSS_ATTENTION, attention_config=attention_config)
        self.ln_2 = nn.LayerNorm(n_embd, eps=epsilon, bias=bias)

    def forward(self, queries: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Queries (batch, Q, n_embd) and image tokens (batch, S, n_embd) -> (batch, Q, n_embd)."""
        return self.ln_2(self.attn(queries, context=self.ln_1(context)))


class CoCa(NNModel):
    """Captions images, and embeds image and text so that they can be compared; names are those of checkpoints.

    Groups for weight decay: `linear` (with the convolution), `embedding` (with class token and queries), `layernorm`.
    """

    def __init__(self, config: CoCaConfig) -> None:
        super().__init__(seed=config.seed, weight_decay_groups=_WEIGHT_DECAY_GROUPS)
        self.config = config
        text, vision = config.text_decoder_config, config.vision_encoder_config
        text = text.model_copy(update={"prediction_key": config.text_embd_prediction_key})
        vision = vision.model_copy(update={"prediction_key": config.vision_embd_prediction_key})
        self.vision_encoder = VisionTransformer(vision)
        # The last one is for the embedding of the whole image.
        self.vision_queries = nn.Parameter(torch.randn(config.n_vision_queries + 1, vision.n_embd))
        self.text_decoder = TextDecoder(text)
        self.multimodal_decoder = MultiModalDecoder(text)
        self.attn_pool = AttentionPooling(
            n_embd=vision.n_embd,
            n_head=config.n_pool_head,
            bias=config.bias_attn_pool,
            epsilon=config.epsilon_attn_pool,
            attention_config=text.attention_config,
        )
        self.text_decoder.transformer["wte"].weight = self.multimodal_decoder.lm_head.weight

    @property
    def vocab_size(self) -> int:
        """Number of token ids that the model knows."""
        return self.config.text_decoder_config.vocab_size

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Images (batch, channels, height, width) and token ids (batch, T), int32 or int64, by their sample keys.

        Returns:
            Next-token logits (batch, T, vocab_size), and the embeddings of image and of text, (batch, 1, n_embd) each.

        Raises:
            UserError: the images are not of the model's size, or T is larger than its block size.
        """
        image_tokens = self.vision_encoder(inputs)[self.config.vision_embd_prediction_key]
        queries = self.vision_queries.expand(len(image_tokens), -1, -1)
        vision = self.attn_pool(queries, context=image_tokens)
        text = self.text_decoder(inputs)[self.config.text_embd_prediction_key]
        return {
            self.config.prediction_key: self.multimodal_decoder(text[:, :-1], context=vision[:, :-1]),
            # FSDP2 hooks into the predictions' gradients and wants no views.
            self.config.vision_cls_prediction_key: vision[:, -1:].clone(),
            self.config.text_cls_prediction_key: text[:, -1:].clone(),
        }


def build_coca(**fields: Any) -> CoCa:
    """A model from the fields of `CoCaConfig`, with weights that its seed decides."""
    config = CoCaConfig(**fields)
    with seeded_construction(config.seed):
        return CoCa(config)
