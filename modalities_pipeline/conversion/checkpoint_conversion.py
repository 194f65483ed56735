"""From a config to a Hugging Face model folder, in one call."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from modalities_pipeline.checkpointing.folders import find_checkpoints, find_fsdp1_checkpoints, fsdp1_file_paths
from modalities_pipeline.checkpointing.resume import checkpoint_path_of
from modalities_pipeline.config.nodes import is_component
from modalities_pipeline.config.pydantic_if_types import PydanticPytorchModuleType, PydanticTokenizerIFType
from modalities_pipeline.conversion.hf_adapter import HFModelAdapter
from modalities_pipeline.conversion.hf_export import Vocabulary, vocabulary_of, write_hf_model
from modalities_pipeline.conversion.trained_model import huggingface_hint, load_run_config, load_trained_model
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.exceptions import ConfigError, ConversionError, OutputExistsError
from modalities_pipeline.main import Main
from modalities_pipeline.models.gpt2 import GPT2LLM
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer, PreTrainedSPTokenizer

logger = logging.getLogger(__name__)

_CHECKPOINTED_MODEL = "checkpointed_model"
_TOKENIZER = "tokenizer"
_EOD_TOKEN_PLACES = (("settings", "eod_token"), ("text_inference_component", "config", "eod_token"))


class _CheckpointedModel(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    checkpointed_model: PydanticPytorchModuleType


class _Tokenizer(BaseModel):
    tokenizer: PydanticTokenizerIFType


def convert_checkpoint(config_file_path: Path, output_dir: Path, prediction_key: str) -> HFModelAdapter:
    """Write a trained model as a folder that transformers loads without remote code, and load it from there.

    The folder appears when it is complete and its logits agree with the trained model's. Its weights have the
    checkpoint's dtype. The config's tokenizer (the only one, or the one called `tokenizer`) is in the folder, too; the
    end of documents is the config's `eod_token`, or else the tokenizer's own end token.

    Args:
        config_file_path: a config with a section `checkpointed_model`; or the training config in the experiment folder
            of its run, where the newest complete checkpoint is taken.
        output_dir: a folder that does not exist yet, or is empty.
        prediction_key: what the model calls its logits.

    Raises:
        ConfigError: the config is wrong, or neither names a checkpoint nor lies beside one.
        CheckpointingError: the checkpoint cannot be read, or is none of this model.
        ConversionError: transformers' stock architectures cannot express the model, or `prediction_key` or the
            tokenizer is not the model's.
        OutputExistsError: the output folder has something in it.
    """
    if output_dir.exists() and not (output_dir.is_dir() and not any(output_dir.iterdir())):
        raise OutputExistsError(f"{output_dir} exists already. Delete it, or name another folder.")
    run = load_run_config(config_file_path)
    model = _trained_model(run)
    if model.config.prediction_key != prediction_key:
        raise ConversionError(
            f"prediction_key is {prediction_key!r}, but the model calls its logits {model.config.prediction_key!r}."
        )
    tokenizer = _tokenizer(run)
    vocabulary = _vocabulary(tokenizer, run.config_dict) if tokenizer else None
    with atomic_path(output_dir) as temporary:
        write_hf_model(model, temporary, _dtype_of(model), vocabulary)
        if tokenizer and vocabulary and vocabulary.tokenizer is None:
            tokenizer.save(temporary)
            logger.warning("The SentencePiece model is in the folder as it is; use it by that library.")
    return HFModelAdapter.from_pretrained(output_dir, prediction_key)


def _trained_model(run: Main) -> GPT2LLM:
    if _CHECKPOINTED_MODEL not in run.config_dict:
        return load_trained_model(run.config_path, _newest_checkpoint(run), dtype=None)
    model = run.build_components(_CheckpointedModel).checkpointed_model
    if not isinstance(model, GPT2LLM):
        raise ConversionError(
            f"{_CHECKPOINTED_MODEL} is a {type(model).__name__}; only models gpt2 can be converted, not wrapped in "
            f"anything.{huggingface_hint(run.config_dict)}"
        )
    return model.to("cpu").eval()


def _newest_checkpoint(run: Main) -> Path:
    folder = run.config_path.resolve().parent
    places = [folder / "checkpoints", folder]
    try:
        places.insert(0, checkpoint_path_of(run.config_dict))
    except ConfigError:
        logger.debug("%s does not say where its checkpoints are.", run.config_path)
    for place in places:
        # A path outside of the experiment's folder may hold checkpoints of other experiments, too.
        experiment_id = None if place.resolve().is_relative_to(folder) else folder.name
        checkpoints = find_checkpoints(place, experiment_id)
        if checkpoints:
            logger.info("Converting %s.", checkpoints[-1][0])
            return checkpoints[-1][0]
    experiment_id = _look_up(run.config_dict, ("settings", "experiment_id")) or folder.name
    for place in places:
        if files := find_fsdp1_checkpoints(place, experiment_id):
            newest, _ = fsdp1_file_paths(place, experiment_id, files[-1])
            raise ConfigError(
                f"{run.config_path}: its checkpoints are files of FSDP1, which are converted by a config that names "
                f"one: with a section {_CHECKPOINTED_MODEL}, a component model/fsdp1_checkpointed whose "
                f"checkpoint_path is {newest}, as in configs/generate_text.yaml."
            )
    raise ConfigError(
        f"{run.config_path}: there is no complete checkpoint of it in {', '.join(map(str, dict.fromkeys(places)))}. "
        f"Give the config that lies in the experiment folder of a run, or add a section {_CHECKPOINTED_MODEL}: a "
        "component model/fsdp1_checkpointed with checkpoint_loading, checkpoint_path and model."
    )


def _tokenizer(run: Main) -> TokenizerWrapper | None:
    config_dict = run.config_dict
    nodes = {
        name: node for name, node in config_dict.items() if is_component(node) and node["component_key"] == _TOKENIZER
    }
    if not nodes:
        logger.warning("%s has no tokenizer: the folder will have none, and no end token.", run.config_path)
        return None
    if len(nodes) > 1 and _TOKENIZER not in nodes:
        raise ConfigError(
            f"{run.config_path}: there are several tokenizers ({', '.join(nodes)}). Call the one that belongs to the "
            f"model '{_TOKENIZER}'."
        )
    node = nodes.get(_TOKENIZER) or next(iter(nodes.values()))
    return run.component_factory.build_components({**config_dict, _TOKENIZER: node}, _Tokenizer).tokenizer


def _vocabulary(tokenizer: TokenizerWrapper, config_dict: Mapping[str, Any]) -> Vocabulary:
    eod_token = next(filter(None, (_look_up(config_dict, place) for place in _EOD_TOKEN_PLACES)), None)
    if eod_token is None:
        eod_token = _end_token(tokenizer)
        logger.info("The config names no eod_token; documents end with the tokenizer's own end token: %s.", eod_token)
    if isinstance(tokenizer, PreTrainedHFTokenizer):
        return vocabulary_of(tokenizer.tokenizer, "The tokenizer", eod_token)
    eod_token_id = None if eod_token is None else tokenizer.get_token_id(eod_token)
    return Vocabulary(tokenizer.num_token_ids, eod_token, eod_token_id)


def _end_token(tokenizer: TokenizerWrapper) -> str | None:
    if isinstance(tokenizer, PreTrainedHFTokenizer):
        return tokenizer.tokenizer.eos_token
    if isinstance(tokenizer, PreTrainedSPTokenizer) and tokenizer.tokenizer.eos_id() >= 0:
        return tokenizer.tokenizer.IdToPiece(tokenizer.tokenizer.eos_id())
    return None


def _look_up(node: Any, keys: tuple[str, ...]) -> str | None:
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if isinstance(node, str) else None


def _dtype_of(model: GPT2LLM) -> torch.dtype:
    dtypes = {parameter.dtype for parameter in model.parameters()}
    if len(dtypes) > 1:
        raise ConversionError(
            f"The weights are of several dtypes ({', '.join(sorted(map(str, dtypes)))}). Set the precision of "
            "checkpoint_loading."
        )
    return dtypes.pop()
