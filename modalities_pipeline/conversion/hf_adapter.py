"""A converted model as Modalities' users handle it."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.modeling_outputs import CausalLMOutput


class HFModelAdapter(nn.Module):
    """A model folder of transformers, called like the model that was trained.

    Attributes:
        model: the transformers model.
        prediction_key: what the trained model calls its logits.
    """

    def __init__(self, model: Any, prediction_key: str = "logits") -> None:
        super().__init__()
        self.model = model
        self.prediction_key = prediction_key

    @classmethod
    def from_pretrained(cls, model_dir: Path | str, prediction_key: str = "logits", **kwargs: Any) -> "HFModelAdapter":
        """The adapter of a converted folder, in evaluation mode; `kwargs` are those of `AutoModelForCausalLM`."""
        return cls(AutoModelForCausalLM.from_pretrained(model_dir, **kwargs).eval(), prediction_key)

    @property
    def config(self) -> Any:
        """The config of the transformers model."""
        return self.model.config

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> torch.Tensor | CausalLMOutput:
        """Logits of shape (batch, T, vocab_size) for token ids of shape (batch, T); with `return_dict` all outputs.

        `kwargs` are those of the transformers model.
        """
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        return outputs if return_dict else outputs.logits

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """`generate` of the transformers model."""
        return self.model.generate(*args, **kwargs)

    def save_pretrained(self, model_dir: Path | str, **kwargs: Any) -> None:
        """`save_pretrained` of the transformers model."""
        self.model.save_pretrained(model_dir, **kwargs)
