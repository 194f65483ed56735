"""Writes a Hugging Face model folder, and proves that it is the model it was made from."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from modalities_pipeline.conversion.hf_verification import PROBE_TEXT, verify_logits, verify_tokens
from modalities_pipeline.conversion.llama import to_llama
from modalities_pipeline.conversion.trained_model import load_trained_model
from modalities_pipeline.data.manifest import BuildResult
from modalities_pipeline.exceptions import ConversionError
from modalities_pipeline.models.gpt2 import GPT2LLM

logger = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_MODEL_CARD = """---
library_name: transformers
pipeline_tag: text-generation
---
# A language model trained with modalities_pipeline

{architecture}, {num_parameters:,} parameters, {dtype}, context of {context} tokens.{documents}

```python
from transformers import AutoModelForCausalLM{tokenizer_import}

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder"){tokenizer_line}
```
"""
_TOKENIZER_LINE = '\ntokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")'


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What a model folder says of tokens.

    Attributes:
        num_token_ids: largest id plus one.
        eod_token, eod_token_id: the token that ends documents; None if that is not known.
        tokenizer: is written into the folder; None: it comes without one that transformers loads.
    """

    num_token_ids: int
    eod_token: str | None = None
    eod_token_id: int | None = None
    tokenizer: PreTrainedTokenizerBase | None = None


def export_hf_model(
    config_file_path: Path,
    checkpoint_folder_path: Path,
    tokenizer_dir: Path,
    output_dir: Path,
    eod_token: str,
    dtype: str,
) -> BuildResult:
    """Write weights, tokenizer, generation settings and a model card into `output_dir`; see `build_hf_model`."""
    if dtype not in _DTYPES:
        raise ConversionError(f"dtype {dtype!r} is unknown. Use one of: {', '.join(_DTYPES)}.")
    model = load_trained_model(config_file_path, checkpoint_folder_path)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    vocabulary = vocabulary_of(tokenizer, f"The tokenizer in {tokenizer_dir}", eod_token)
    return write_hf_model(model, output_dir, _DTYPES[dtype], vocabulary)


def vocabulary_of(tokenizer: PreTrainedTokenizerBase, name: str, eod_token: str | None) -> Vocabulary:
    """What a folder with this tokenizer says of tokens; `name` is the tokenizer's in messages.

    Raises:
        ConversionError: the tokenizer has no such end-of-document token.
    """
    ids = tokenizer.get_vocab()
    if eod_token is not None and eod_token not in ids:
        raise ConversionError(f"{name} has no token {eod_token!r}. Set the eod_token packed with.")
    eod_token_id = None if eod_token is None else ids[eod_token]
    return Vocabulary(max(ids.values()) + 1, eod_token, eod_token_id, tokenizer)


def write_hf_model(
    model: GPT2LLM, output_dir: Path, dtype: torch.dtype, vocabulary: Vocabulary | None = None
) -> BuildResult:
    """Write a model into a new folder that transformers loads without remote code, and verify it there.

    Raises:
        ConversionError: transformers' stock architectures cannot express the model, the vocabulary does not fit, or
            what was written differs from the model.
    """
    eod_token_id = vocabulary.eod_token_id if vocabulary else None
    vocab_size = model.config.vocab_size
    if vocabulary and vocabulary.num_token_ids > vocab_size:
        raise ConversionError(
            f"The tokenizer has {vocabulary.num_token_ids} token ids, more than the model's vocab_size ({vocab_size}). "
            "It is not the tokenizer that the model was trained with."
        )
    llama = to_llama(model, dtype, eod_token_id)
    llama.generation_config = GenerationConfig(
        bos_token_id=eod_token_id,
        eos_token_id=eod_token_id,
        pad_token_id=eod_token_id,
        # The vocabulary is padded to a round size; the model must not say what no token stands for.
        suppress_tokens=list(range(vocabulary.num_token_ids, vocab_size)) or None if vocabulary else None,
    )
    llama.save_pretrained(output_dir)
    text_ids = _write_tokenizer(vocabulary, output_dir) if vocabulary else None
    details: dict[str, Any] = {"architecture": type(llama).__name__, "dtype": str(dtype).removeprefix("torch.")}
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    _write_card(output_dir, model, num_parameters, details, vocabulary)
    if text_ids is not None:
        verify_tokens(output_dir, text_ids)
    difference = verify_logits(model.to(dtype).float(), output_dir, text_ids, eod_token_id)
    if vocabulary:
        details |= {name: getattr(vocabulary, name) for name in ("eod_token", "eod_token_id", "num_token_ids")}
    return BuildResult(counts={"num_parameters": num_parameters, "max_logit_difference": difference}, details=details)


def _write_tokenizer(vocabulary: Vocabulary, output_dir: Path) -> list[int] | None:
    """Write the tokenizer and return its ids of the text that the folder is verified with; None if there is none."""
    tokenizer: Any = vocabulary.tokenizer
    if tokenizer is None:
        return None
    text_ids: list[int] = tokenizer(PROBE_TEXT, verbose=False)["input_ids"]
    if vocabulary.eod_token is not None:
        tokenizer.eos_token = tokenizer.bos_token = tokenizer.pad_token = vocabulary.eod_token
    tokenizer.save_pretrained(output_dir)
    return text_ids


def _write_card(
    output_dir: Path, model: GPT2LLM, num_parameters: int, details: dict[str, Any], vocabulary: Vocabulary | None
) -> None:
    has_tokenizer = vocabulary is not None and vocabulary.tokenizer is not None
    documents = ""
    if vocabulary is not None and vocabulary.eod_token is not None:
        documents = (
            f" Documents end with `{vocabulary.eod_token}`\n(id {vocabulary.eod_token_id}), which is also the padding."
        )
    card = _MODEL_CARD.format(
        **details,
        num_parameters=num_parameters,
        context=model.config.sequence_length,
        documents=documents,
        tokenizer_import=", AutoTokenizer" if has_tokenizer else "",
        tokenizer_line=_TOKENIZER_LINE if has_tokenizer else "",
    )
    card_path = output_dir / "README.md"
    card_path.write_text(card, encoding="utf-8")
    for path in output_dir.iterdir():
        # safetensors makes files that only their owner can read; the folder may be meant for others.
        path.chmod(card_path.stat().st_mode)
