"""The kinds of config files, and how to tell them apart."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from modalities_pipeline.config.checking.suggestions import closest_name

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

WORDS = {
    "training": "run",
    "packing": "data pack_encoded_data",
    "text_generation": "generate_text",
    "instruction_data": "data prepare_instruction_tuning_data",
    "profiling": "profile distributed",
}
"""Kind -> the word of the command line that takes such a file."""

PIPELINE = "pipeline"  # the spec of the whole pipeline; `orchestration.spec` checks it
PARTS = "parts"  # no whole run: components to be used one by one

# enough of these, and a file is meant as one of that kind, even if something is missing
_SIGNS_OF_PIPELINE = frozenset({"corpora", "experiments", "output_dir", "tokenizer"})
_SIGNS_OF_INSTRUCTION_DATA = frozenset(
    {"instruction_data_transformation", "jinja2_chat_template", "chat_template_data", "settings"}
)
_SETTINGS_OF_TRAINING = ("intervals", "step_profile", "training_target")
_SETTINGS_OF_PACKING = ("src_path", "dst_path", "jq_pattern", "eod_token", "index_path")
_PARTS_OF_TRAINING = ("app_state", "loss_fn", "train_dataset", "train_dataloader", "eval_dataloaders", "optimizer")
_REPORTS_OF_TRAINING = ("progress_subscriber", "evaluation_subscriber", "checkpoint_saving", "gradient_clipper")
_LIKENESS = 0.8  # from which on a name counts as the valid one misspelt


def kind_of(data: Mapping[str, Any]) -> str:
    """The kind that the content of a config file is meant to be: one of `KINDS`, "pipeline" or "parts"."""
    for kind, is_meant in _KINDS_IN_ORDER.items():
        if is_meant(data):
            return kind
    return PARTS


def kind_of_model(model: type) -> str | None:
    """The kind whose content a pydantic model says; None if it is no model of `KINDS`."""
    return {target: kind for kind, target in KINDS.items()}.get(f"{model.__module__}:{model.__qualname__}")


def describe_other_kind(data: Mapping[str, Any], wanted: str | None) -> str | None:
    """What to say if the content of a config is plainly of another kind than `wanted`; None if it may be of that.

    A model alone may be taken from any file that has one.
    """
    found = kind_of(data)
    if wanted not in WORDS or found not in WORDS or found == wanted:
        return None
    return f"is a config of the kind {found}, not {wanted}; `modalities-pipeline {WORDS[found]}` takes it"


def _is_training(data: Mapping[str, Any]) -> bool:
    """Whether it runs: parts of a training are also found in files that only hold them, for other programs.

    One or two sections that are missing or misspelt leave it a training, whatever they are.
    """
    num_parts, num_reports = _num_meant(data, _PARTS_OF_TRAINING), _num_meant(data, _REPORTS_OF_TRAINING)
    if has_training_settings(data) and num_parts + num_reports >= 3:
        return True
    has_loader = _num_meant(data, ("train_dataloader",)) > 0
    return num_reports >= (2 if has_loader else 3)


def has_training_settings(data: Mapping[str, Any]) -> bool:
    """Whether `settings` hold what only a training needs."""
    return _num_meant(_settings_of(data), _SETTINGS_OF_TRAINING) > 0


def _is_packing(data: Mapping[str, Any]) -> bool:
    return _num_meant(data, ("tokenizer",)) > 0 and _num_meant(_settings_of(data), _SETTINGS_OF_PACKING) > 0


def _settings_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What stands under `settings`, also if that is misspelt; empty if it is no mapping."""
    name = "settings" if "settings" in data else closest_name("settings", map(str, data), _LIKENESS)
    settings = data.get(name) if name is not None else None
    return settings if isinstance(settings, Mapping) else {}


def _num_meant(data: Mapping[str, Any], names: Iterable[str]) -> int:
    """How many of the names are there, or misspelt."""
    keys = list(map(str, data))
    return sum(name in keys or closest_name(name, keys, _LIKENESS) is not None for name in names)


# the first that fits; what is profiled or generates text may extend a training
_KINDS_IN_ORDER: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    PIPELINE: lambda data: len(_SIGNS_OF_PIPELINE & data.keys()) >= 2,
    "instruction_data": lambda data: len(_SIGNS_OF_INSTRUCTION_DATA & data.keys()) >= 2,
    "profiling": lambda data: "steppable_component" in data,
    "text_generation": lambda data: "text_inference_component" in data,
    "training": _is_training,
    "model": lambda data: "checkpointed_model" in data,
    "packing": _is_packing,
}
