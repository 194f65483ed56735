"""Language models of Hugging Face transformers, with their weights."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.models.huggingface_configs import HuggingFaceModelTypes
from modalities_pipeline.models.model import Activations, NNModel, seeded_construction
from modalities_pipeline.tokenization.hf_loading import first_line, hub_is_reachable, may_be_hub_name

_COMPONENT = "huggingface_pretrained_model"


class HuggingFacePretrainedModel(NNModel):
    """A model of transformers that takes token ids and gives one of its outputs, as a rule the logits.

    Attributes:
        huggingface_model: the model itself, an attribute of that name in parameter names, too.
    """

    def __init__(
        self, huggingface_model: nn.Module, sample_key: str, prediction_key: str, subscription_key: str
    ) -> None:
        super().__init__()
        self.huggingface_model = huggingface_model
        self.sample_key = sample_key
        self.prediction_key = prediction_key
        self.subscription_key = subscription_key

    @property
    def vocab_size(self) -> int:
        """Number of token ids that the model knows."""
        return self.huggingface_model.get_input_embeddings().num_embeddings  # type: ignore[operator]

    @property
    def fsdp_block_names(self) -> list[str]:
        """Classes of modules to be sharded as a whole, as transformers names them; may be empty."""
        return sorted(self.huggingface_model._no_split_modules or ())  # type: ignore[arg-type]

    def forward(self, inputs: Activations) -> Activations:
        """Predictions for token ids of shape (batch, T); nothing else (no attention mask) is passed to the model.

        Raises:
            ConfigError: the model's output does not have what the config wants of it.
        """
        if isinstance(inputs, dict):
            return {self.prediction_key: self._predict(inputs[self.sample_key])}
        return self._predict(inputs)

    def _predict(self, token_ids: torch.Tensor) -> torch.Tensor:
        output = self.huggingface_model(token_ids)
        if self.subscription_key not in output:
            raise ConfigError(
                f"{_COMPONENT}: huggingface_prediction_subscription_key: the output of the model has no "
                f"'{self.subscription_key}'. It has: {', '.join(output)}."
            )
        return output[self.subscription_key]


def build_huggingface_pretrained_model(
    model_type: HuggingFaceModelTypes,
    model_name: Path,
    prediction_key: str,
    huggingface_prediction_subscription_key: str,
    sample_key: str,
    model_args: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> HuggingFacePretrainedModel:
    """A model with the weights of a folder, or of the Hugging Face hub; the same on every rank.

    Weights are float32, as is right for training, unless `kwargs` have a `dtype`: without one transformers 5 takes that
    of the files. `model_args` and `kwargs` are those of `from_pretrained`.

    Raises:
        ConfigError: there is no such folder or model, or transformers cannot make a model of `model_type` from it.
    """
    is_folder = model_name.is_dir()
    # The absolute path of a folder is never taken for a name of the hub.
    name = str(model_name.absolute() if is_folder else model_name)
    options: dict[str, Any] = {"local_files_only": is_folder or not _is_on_reachable_hub(model_name)}
    if not kwargs or not kwargs.keys() & {"dtype", "torch_dtype"}:
        options["dtype"] = torch.float32
    try:
        with seeded_construction(None):  # weights that the files lack are random
            loader = getattr(transformers, model_type.value)
            model = loader.from_pretrained(name, *(model_args or ()), **{**options, **(kwargs or {})})
    except Exception as error:  # damaged files and unknown arguments make transformers raise nearly anything
        where = ", and the Hugging Face hub does not answer" if options["local_files_only"] and not is_folder else ""
        raise ConfigError(
            f"{_COMPONENT}: transformers makes no {model_type.value} of '{model_name}'{where} ({first_line(error)}). "
            "Name a folder that `save_pretrained` has written, or a model of the hub (needs network)."
        ) from error
    wrapped = HuggingFacePretrainedModel(
        model,
        sample_key=sample_key,
        prediction_key=prediction_key,
        subscription_key=huggingface_prediction_subscription_key,
    )
    return wrapped.train()  # as all new models are; transformers' are not


def _is_on_reachable_hub(model_name: Path) -> bool:
    """Whether the hub, which is asked once, answers; if not, only what was downloaded before is looked at."""
    if not may_be_hub_name(str(model_name)):
        raise ConfigError(
            f"{_COMPONENT}: model_name: there is no folder '{model_name}', and it is no name of the Hugging Face hub. "
            "Mend the path."
        )
    return hub_is_reachable()
