"""Loading a Hugging Face tokenizer, at the least cost."""

import json
import logging
from pathlib import Path
from typing import Any

from modalities_pipeline.exceptions import DatasetNotFoundError

logger = logging.getLogger(__name__)

# Classes that `AutoTokenizer` takes just because tokenizer_config.json names them -> their names since version 5.
_PLAIN_CLASSES = {
    "PreTrainedTokenizerFast": "PreTrainedTokenizerFast",
    "TokenizersBackend": "PreTrainedTokenizerFast",
    "GPT2Tokenizer": "GPT2Tokenizer",
    "GPT2TokenizerFast": "GPT2Tokenizer",
}


def load_hf_tokenizer(name_or_path: str) -> Any:
    """What `AutoTokenizer.from_pretrained` gives for a folder or a name of the Hugging Face hub.

    Raises:
        DatasetNotFoundError: nothing can be loaded from there.
    """
    folder = Path(name_or_path)
    if not folder.is_dir():
        logger.info("There is no folder '%s' here; looking for it on the Hugging Face hub.", name_or_path)
    else:
        # The absolute path of a folder is never taken for a name of the hub, some of which are treated specially.
        name_or_path = str(folder.absolute())
    try:
        return _class_for(folder).from_pretrained(name_or_path)
    except Exception as error:  # damaged files make transformers raise nearly anything
        raise DatasetNotFoundError(
            f"No Hugging Face tokenizer can be loaded from '{name_or_path}' ({first_line(error)}). Name a folder with "
            "tokenizer.json and tokenizer_config.json, or a model of the hub (needs network)."
        ) from error


def calls_backend_directly(tokenizer: Any) -> bool:
    """Whether the `tokenizers.Tokenizer` behind a tokenizer gives its ids, with nothing done before or after."""
    from transformers import PreTrainedTokenizerFast

    kind = type(tokenizer)
    return isinstance(tokenizer, PreTrainedTokenizerFast) and all(
        getattr(kind, name) is getattr(PreTrainedTokenizerFast, name) for name in ("__call__", "_encode_plus")
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's text, to be quoted within a sentence."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _class_for(folder: Path) -> Any:
    """`AutoTokenizer`, or in plain cases the class it would choose: importing `AutoTokenizer` imports torch."""
    import transformers

    if not (folder / "tokenizer.json").is_file() or (folder / "config.json").exists():
        return transformers.AutoTokenizer
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        plain = None if "auto_map" in config else _PLAIN_CLASSES.get(config.get("tokenizer_class"))
    except (OSError, ValueError, TypeError, AttributeError):
        plain = None
    return transformers.AutoTokenizer if plain is None else getattr(transformers, plain)
