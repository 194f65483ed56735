"""Proves that a Hugging Face model folder is the model that it was made from."""

import logging
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from modalities_pipeline.exceptions import ConversionError
from modalities_pipeline.models.gpt2 import GPT2LLM

logger = logging.getLogger(__name__)

PROBE_TEXT = (
    "The quick brown fox jumps over the lazy dog.\n\ndef main() -> None:\n    print('1, 2, 3')  # naïve façade\n\n"
    "A list is a mutable sequence, typically used to store collections of homogeneous items. "
) * 8
_MAX_LOGIT_DIFFERENCE = 1e-4
_NUM_RANDOM_PROBES = 4


def verify_tokens(model_dir: Path, text_ids: list[int]) -> None:
    """Raise `ConversionError` unless the folder's tokenizer gives these ids for `PROBE_TEXT`."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    if tokenizer(PROBE_TEXT, verbose=False)["input_ids"] != text_ids:
        raise ConversionError("The saved tokenizer does not tokenize like the one that the data was packed with.")


@torch.inference_mode()
def verify_logits(model: GPT2LLM, model_dir: Path, text_ids: list[int] | None, eod_token_id: int | None) -> float:
    """Load the folder as a user would, compare it with our model in float32, and return the largest difference.

    Args:
        model: in float32, its weights rounded as the folder's are.
        model_dir: the folder.
        text_ids: tokens of a text to compare with beside random ones; the tokenizer is then in the folder, too.
        eod_token_id: what the folder must give for the end of documents.

    Raises:
        ConversionError: the logits differ by more than 1e-4, or the end token is another one.
    """
    reloaded = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    special_ids = [reloaded.config.eos_token_id, reloaded.generation_config.eos_token_id]
    if text_ids is not None and eod_token_id is not None:
        special_ids.append(AutoTokenizer.from_pretrained(model_dir).eos_token_id)
    if any(special_id != eod_token_id for special_id in special_ids):
        raise ConversionError(f"The end token's id is {eod_token_id}, but was saved as {special_ids}.")
    length = model.config.sequence_length
    generator = torch.Generator().manual_seed(0)
    probes = [torch.randint(model.config.vocab_size, (_NUM_RANDOM_PROBES, length), generator=generator)]
    if text_ids:
        probes.append(torch.tensor([text_ids[:length]]))
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
