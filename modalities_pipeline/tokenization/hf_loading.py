"""Loading a Hugging Face tokenizer, at the least cost."""

import json
import logging
import re
from pathlib import Path
from typing import Any

from modalities_pipeline.exceptions import DatasetNotFoundError

logger = logging.getLogger(__name__)

_HUB_NAME_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HUB_TIMEOUT_IN_S = 5

# Classes that `AutoTokenizer` takes just because tokenizer_config.json names them -> their names since version 5.
_PLAIN_CLASSES = {
    "PreTrainedTokenizerFast": "PreTrainedTokenizerFast",
    "TokenizersBackend": "PreTrainedTokenizerFast",
    "GPT2Tokenizer": "GPT2Tokenizer",
    "GPT2TokenizerFast": "GPT2Tokenizer",
}


def load_hf_tokenizer(name_or_path: str) -> Any:
    """What `AutoTokenizer.from_pretrained` gives for a folder or a name of the Hugging Face hub.

    A hub that does not answer is asked once; then only what was downloaded before is looked at.

    Raises:
        DatasetNotFoundError: nothing can be loaded from there.
    """
    folder = Path(name_or_path)
    options = {}
    if folder.is_dir():
        # The absolute path of a folder is never taken for a name of the hub, some of which are treated specially.
        name_or_path = str(folder.absolute())
    else:
        if not may_be_hub_name(name_or_path):
            raise DatasetNotFoundError(
                f"There is no folder '{name_or_path}', and it is no name of the Hugging Face hub. Mend the path."
            )
        is_reachable = hub_is_reachable()
        options = {"local_files_only": not is_reachable}
        logger.info(
            "There is no folder '%s' here; looking for it %s.",
            name_or_path,
            "on the Hugging Face hub" if is_reachable else "among earlier downloads, as the hub does not answer",
        )
    try:
        return _class_for(folder).from_pretrained(name_or_path, **options)
    except Exception as error:  # damaged files make transformers raise nearly anything
        where = " and the Hugging Face hub does not answer" if options.get("local_files_only") else ""
        raise DatasetNotFoundError(
            f"No Hugging Face tokenizer can be loaded from '{name_or_path}'{where} ({first_line(error)}). Name a "
            "folder with tokenizer.json and tokenizer_config.json, or a model of the hub (needs network)."
        ) from error


def may_be_hub_name(name: str) -> bool:
    """Whether a name is like `model` or `owner/model`, and not meant as a path below a folder that is here."""
    parts = name.split("/")
    return len(parts) <= 2 and all(map(_HUB_NAME_PART.fullmatch, parts)) and not (parts[1:] and Path(parts[0]).is_dir())


def hub_is_reachable() -> bool:
    """Ask the hub once; the libraries would ask for each file again and again, for most of a minute."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.is_offline_mode():
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT_IN_S)
    except Exception as error:  # whatever the HTTP client raises without an answer
        logger.debug("The Hugging Face hub does not answer: %s", error)
        return False
    return True


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
