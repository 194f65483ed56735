"""Writes a Hugging Face model folder, and proves that it is the model it was made from."""

import logging
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from modalities_pipeline.conversion.llama import to_llama
from modalities_pipeline.conversion.trained_model import load_trained_model
from modalities_pipeline.data.manifest import BuildResult
from modalities_pipeline.exceptions import ConversionError
from modalities_pipeline.models.gpt2 import GPT2LLM

logger = logging.getLogger(__name__)

_MAX_LOGIT_DIFFERENCE = 1e-4
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_PROBE_TEXT = (
    "The quick brown fox jumps over the lazy dog.\n\ndef main() -> None:\n    print('1, 2, 3')  # naïve façade\n\n"
    "A list is a mutable sequence, typically used to store collections of homogeneous items. "
) * 8
_NUM_RANDOM_PROBES = 4

_MODEL_CARD = """---
library_name: transformers
pipeline_tag: text-generation
---
# A language model trained with modalities_pipeline

{architecture}, {num_parameters:,} parameters, {dtype}, context of {context} tokens. Documents end with `{eod_token}`
(id {eod_token_id}), which is also the padding.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```
"""


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
    eod_token_id, num_token_ids = _check_tokenizer(tokenizer, tokenizer_dir, eod_token, model.config.vocab_size)
    llama = to_llama(model, _DTYPES[dtype], eod_token_id)
    llama.generation_config = GenerationConfig(
        bos_token_id=eod_token_id,
        eos_token_id=eod_token_id,
        pad_token_id=eod_token_id,
        # The vocabulary is padded to a round size; the model must not say what no token stands for.
        suppress_tokens=list(range(num_token_ids, model.config.vocab_size)) or None,
    )
    llama.save_pretrained(output_dir)
    tokenizer.eos_token = tokenizer.bos_token = tokenizer.pad_token = eod_token
    tokenizer.save_pretrained(output_dir)
    architecture = type(llama).__name__
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    card = _MODEL_CARD.format(
        architecture=architecture,
        num_parameters=num_parameters,
        dtype=dtype,
        context=model.config.sequence_length,
        eod_token=eod_token,
        eod_token_id=eod_token_id,
    )
    card_path = output_dir / "README.md"
    card_path.write_text(card, encoding="utf-8")
    for path in output_dir.iterdir():
        # safetensors makes files that only their owner can read; the folder may be meant for others.
        path.chmod(card_path.stat().st_mode)
    difference = _verify(model.to(_DTYPES[dtype]).float(), output_dir, tokenizer_dir, eod_token_id)
    return BuildResult(
        counts={"num_parameters": num_parameters, "max_logit_difference": difference},
        details={
            "architecture": architecture,
            "dtype": dtype,
            "eod_token": eod_token,
            "eod_token_id": eod_token_id,
            "num_token_ids": num_token_ids,
        },
    )


def _check_tokenizer(
    tokenizer: PreTrainedTokenizerBase, tokenizer_dir: Path, eod_token: str, vocab_size: int
) -> tuple[int, int]:
    """(id of the end-of-document token, number of token ids)."""
    ids = tokenizer.get_vocab()
    if eod_token not in ids:
        raise ConversionError(
            f"The tokenizer in {tokenizer_dir} has no token {eod_token!r}. Set the eod_token packed with."
        )
    num_token_ids = max(ids.values()) + 1
    if num_token_ids > vocab_size:
        raise ConversionError(
            f"The tokenizer in {tokenizer_dir} has {num_token_ids} token ids, more than the model's vocab_size "
            f"({vocab_size}). It is not the tokenizer that the model was trained with."
        )
    return ids[eod_token], num_token_ids


@torch.inference_mode()
def _verify(model: GPT2LLM, output_dir: Path, tokenizer_dir: Path, eod_token_id: int) -> float:
    """Load the folder as a user would, compare it with our model in float32, and return the largest difference."""
    reloaded = AutoModelForCausalLM.from_pretrained(output_dir, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(output_dir)
    text_ids = tokenizer(_PROBE_TEXT, verbose=False)["input_ids"]
    if text_ids != AutoTokenizer.from_pretrained(tokenizer_dir)(_PROBE_TEXT, verbose=False)["input_ids"]:
        raise ConversionError(f"The saved tokenizer does not tokenize like the one in {tokenizer_dir}.")
    special_ids = (tokenizer.eos_token_id, reloaded.config.eos_token_id, reloaded.generation_config.eos_token_id)
    if special_ids != (eod_token_id,) * len(special_ids):
        raise ConversionError(f"The end token's id is {eod_token_id}, but was saved as {special_ids}.")
    length = model.config.sequence_length
    generator = torch.Generator().manual_seed(0)
    probes = [
        torch.randint(model.config.vocab_size, (_NUM_RANDOM_PROBES, length), generator=generator),
        torch.tensor([text_ids[:length]]),
    ]
    differences = [(model(probe) - reloaded(input_ids=probe, use_cache=False).logits).abs().max() for probe in probes]
    difference = float(torch.stack(differences).max())
    logger.info("The converted model's logits differ by at most %.2e.", difference)
    # Written so that NaN fails as well.
    if not difference < _MAX_LOGIT_DIFFERENCE:
        raise ConversionError(
            f"The logits of the converted model differ by {difference:.2e} from the trained one's, more than "
            f"{_MAX_LOGIT_DIFFERENCE:.0e}. Nothing was published."
        )
    return difference
