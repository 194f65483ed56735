"""The two halves of CoCa's decoder: layers that see text alone, and layers that also look at the image."""

import torch
from torch import nn

from modalities_pipeline.exceptions import UserError
from modalities_pipeline.models.coca_configs import TextDecoderConfig
from modalities_pipeline.models.configs import ActivationType
from modalities_pipeline.models.gpt2 import SwiGLU
from modalities_pipeline.models.model import Activations, NNModel
from modalities_pipeline.models.multi_head_attention import AttentionType, MultiHeadAttention
from modalities_pipeline.models.vision_transformer import MLP

# The width of SwiGLU is rounded up to a multiple of it.
_SWIGLU_MULTIPLE = 256


class TransformerBlock(nn.Module):
    """Pre-norm block: causal attention, attention to a context if it has one, feed-forward network.

    Norms and networks are called as in checkpoints: `ln_2` and `mlp` without a context, else `ln_3`, `cross_attn`,
    `ln_4` and `mlp_2`. As in Modalities, attention never has dropout.
    """

    def __init__(self, config: TextDecoderConfig, with_context: bool) -> None:
        super().__init__()
        self.with_context = with_context
        self.ln_1 = _norm(config)
        self.attn = _attention(config, AttentionType.CAUSAL_SELF_ATTENTION)
        if with_context:
            self.ln_3 = _norm(config)
            self.cross_attn = _attention(config, AttentionType.CROSS_ATTENTION)
            self.ln_4 = _norm(config)
            self.mlp_2 = _feed_forward(config)
        else:
            self.ln_2 = _norm(config)
            self.mlp = _feed_forward(config)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Shape (batch, T, n_embd) in and out; the context is (batch, S, n_embd)."""
        x = x + self.attn(self.ln_1(x))
        if not self.with_context:
            return x + self.mlp(self.ln_2(x))
        x = x + self.cross_attn(self.ln_3(x), context=context)
        return x + self.mlp_2(self.ln_4(x))


class TextDecoder(NNModel):
    """Embeddings of tokens, and of a class token after the last one, which sees the whole text."""

    def __init__(self, config: TextDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.cls_token = nn.Parameter(torch.randn(1, 1, config.n_embd))
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size + 1, config.n_embd),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList(TransformerBlock(config, with_context=False) for _ in range(config.n_layer_text)),
            }
        )

    def forward(self, inputs: Activations) -> Activations:
        """Token ids (batch, T), int32 or int64 -> (batch, T + 1, n_embd), of which the last is the class token.

        Raises:
            UserError: T is larger than the block size.
        """
        if isinstance(inputs, dict):
            return {self.config.prediction_key: self._embed(inputs[self.config.sample_key])}
        return self._embed(inputs)

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        batch_size, length = token_ids.shape
        if length > self.config.block_size:
            raise UserError(
                f"The model got {length} tokens per text, more than its block_size ({self.config.block_size}). Shorten "
                "the texts, or make block_size larger."
            )
        tokens = torch.cat((self.transformer["wte"](token_ids), self.cls_token.expand(batch_size, -1, -1)), dim=1)
        positions = torch.arange(length + 1, device=token_ids.device)
        x = self.transformer["drop"](tokens + self.transformer["wpe"](positions))
        for block in self.transformer["h"].children():
            x = block(x)
        return x


class MultiModalDecoder(nn.Module):
    """Logits of the next tokens, from the text's embeddings and the tokens of the image."""

    def __init__(self, config: TextDecoderConfig) -> None:
        super().__init__()
        num_layers = config.n_layer_multimodal_text
        blocks = nn.ModuleList(TransformerBlock(config, with_context=True) for _ in range(num_layers))
        self.transformer = nn.ModuleDict({"h": blocks, "ln_f": _norm(config)})
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """(batch, T, n_embd) and the image's (batch, S, n_embd) -> (batch, T, vocab_size)."""
        for block in self.transformer["h"].children():
            x = block(x, context=context)
        return self.lm_head(self.transformer["ln_f"](x))


def _norm(config: TextDecoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.n_embd, eps=config.epsilon, bias=config.bias)


def _attention(config: TextDecoderConfig, attention_type: AttentionType) -> MultiHeadAttention:
    return MultiHeadAttention(
        n_embd=config.n_embd,
        n_head=config.n_head,
        attention_type=attention_type,
        bias=config.bias,
        attention_config=config.attention_config,
    )


def _feed_forward(config: TextDecoderConfig) -> nn.Module:
    if config.activation is ActivationType.GELU:
        return MLP(config.n_embd, config.ffn_hidden, config.bias, config.dropout)
    return SwiGLU(config.n_embd, config.ffn_hidden, config.bias, _SWIGLU_MULTIPLE)
