"""The kinds of config files, and how to tell them apart."""

from collections.abc import Mapping
from typing import Any

_SCHEMAS = "modalities_pipeline.config.schemas"

KINDS: dict[str, str] = {
    "training": f"{_SCHEMAS}.training:TrainingComponentsInstantiationModel",
    "packing": f"{_SCHEMAS}.packing:PackedDatasetComponentsInstantiationModel",
    "text_generation": f"{_SCHEMAS}.text_generation:TextGenerationInstantiationModel",
    "instruction_data": f"{_SCHEMAS}.instruction_data:InstructionTuningDataInstantiationModel",
    "profiling": f"{_SCHEMAS}.profiling:ProfilingInstantiationModel",
    "model": f"{_SCHEMAS}.model_only:ModelInstantiationModel",
}
"""Kind -> "module:Class" of the model that says what such a file has to contain."""

PIPELINE = "pipeline"  # the spec of the whole pipeline; `orchestration.spec` checks it
PARTS = "parts"  # no whole run: components to be used one by one

# enough of these, and a file is meant as one of that kind, even if something is missing
_SIGNS: dict[str, tuple[int, frozenset[str]]] = {
    PIPELINE: (2, frozenset({"corpora", "experiments", "output_dir", "tokenizer"})),
    "instruction_data": (
        2,
        frozenset({"instruction_data_transformation", "jinja2_chat_template", "chat_template_data", "settings"}),
    ),
    "text_generation": (1, frozenset({"text_inference_component"})),
    "training": (
        3,
        frozenset(
            {
                *("app_state", "loss_fn", "train_dataset", "train_dataloader", "eval_dataloaders", "checkpoint_saving"),
                *("progress_subscriber", "evaluation_subscriber", "gradient_clipper", "optimizer", "settings"),
            }
        ),
    ),
    "profiling": (1, frozenset({"steppable_component"})),
    "model": (1, frozenset({"checkpointed_model"})),
    "packing": (2, frozenset({"settings", "tokenizer"})),
}


def kind_of(data: Mapping[str, Any]) -> str:
    """The kind that the content of a config file is meant to be: one of `KINDS`, "pipeline" or "parts"."""
    for kind, (num_signs, signs) in _SIGNS.items():
        if len(signs & data.keys()) >= num_signs and _has_settings_of(kind, data):
            return kind
    return PARTS


def _has_settings_of(kind: str, data: Mapping[str, Any]) -> bool:
    """Whether a kind that is nothing without `settings` has them."""
    return kind != "training" or "settings" in data or ("app_state" in data and "train_dataloader" in data)
