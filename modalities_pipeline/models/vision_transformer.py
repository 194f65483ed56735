"""The vision transformer (https://arxiv.org/abs/2010.11929)."""

import torch
from torch import nn

from modalities_pipeline.exceptions import UserError
from modalities_pipeline.models.coca_configs import VisionTransformerConfig
from modalities_pipeline.models.model import Activations, NNModel
from modalities_pipeline.models.multi_head_attention import AttentionType, MultiHeadAttention


class MLP(nn.Module):
    """`fc2(gelu(fc1(x)))` with the exact GELU."""

    def __init__(self, n_embd: int, ffn_hidden: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(n_embd, ffn_hidden, bias=bias)
        self.act = nn.GELU()
        self.drop1 = nn.Dropout(dropout)
        self.fc2 = nn.Linear(ffn_hidden, n_embd, bias=bias)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (..., n_embd) in and out."""
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class ImagePatchEmbedding(nn.Module):
    """One token for each patch of an image, row by row, after a learned one if there is a class token."""

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__()
        self.conv = nn.Conv2d(config.n_img_channels, config.n_embd, config.patch_size, config.patch_stride)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.n_embd)) if config.add_cls_token else None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) of any dtype -> (batch, tokens, n_embd)."""
        tokens = self.conv(images.to(self.conv.weight.dtype)).flatten(2).transpose(1, 2)
        if self.cls_token is None:
            return tokens
        return torch.cat((self.cls_token.expand(len(tokens), -1, -1), tokens), dim=1)


class VisionTransformerBlock(nn.Module):
    """Pre-norm transformer block: `x + attention(norm1(x))`, then `x + mlp(norm2(x))`.

    As in Modalities, the attention always has biases, and never dropout.
    """

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.n_embd)
        self.attention = MultiHeadAttention(
            n_embd=config.n_embd,
            n_head=config.n_head,
            attention_type=AttentionType.NON_CAUSAL_SELF_ATTENTION,
            attention_config=config.attention_config,
        )
        self.norm2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config.n_embd, config.ffn_hidden, config.bias, config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, tokens, n_embd) in and out."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(NNModel):
    """Tokens of images or, with `n_classes`, logits of the images' classes, from the class token or else the mean.

    Attributes:
        block_size: number of tokens of an image.
    """

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.block_size = config.num_tokens
        self.embedding_fn = ImagePatchEmbedding(config)
        self.positional_embedding_fn = nn.Embedding(self.block_size, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(VisionTransformerBlock(config) for _ in range(config.n_layer))
        self.norm: nn.Module | None = None
        self.head: nn.Module | None = None
        if config.n_classes is not None:
            self.norm = nn.LayerNorm(config.n_embd)
            self.head = nn.Linear(config.n_embd, config.n_classes, bias=config.bias)

    def forward(self, inputs: Activations) -> Activations:
        """Images (batch, channels, height, width) -> (batch, tokens, n_embd), or (batch, n_classes) with classes.

        Raises:
            UserError: the images are not of the model's size.
        """
        if isinstance(inputs, dict):
            return {self.config.prediction_key: self._predict(inputs[self.config.sample_key])}
        return self._predict(inputs)

    def _predict(self, images: torch.Tensor) -> torch.Tensor:
        expected = (self.config.n_img_channels, *self.config.image_height_and_width)
        if images.shape[1:] != expected:
            raise UserError(
                f"The model got images of shape {tuple(images.shape[1:])}, but it is for (channels, height, width) "
                f"{expected}. Change the images, or img_size and n_img_channels of the model."
            )
        x = self.embedding_fn(images)
        x = self.dropout(x + self.positional_embedding_fn(torch.arange(self.block_size, device=x.device)))
        for block in self.blocks:
            x = block(x)
        if self.norm is None or self.head is None:
            return x
        return self.head(self.norm(x[:, 0] if self.config.add_cls_token else x.mean(dim=1)))
