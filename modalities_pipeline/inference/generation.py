"""Generates text with a Hugging Face model folder."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from modalities_pipeline.distributed.env import default_device_type
from modalities_pipeline.exceptions import UserError
from modalities_pipeline.inference.samples import GeneratedSample
from modalities_pipeline.inference.sampling import Sampling, prompt_seed
from modalities_pipeline.inference.settings import GenerationSettings

logger = logging.getLogger(__name__)


class Generator:
    """A model and its tokenizer, ready to continue prompts; uses the key-value cache, stops at the end token's id."""

    def __init__(self, hf_model_dir: Path, settings: GenerationSettings) -> None:
        self._settings = settings
        self._device = torch.device(default_device_type())
        self._tokenizer: Any = AutoTokenizer.from_pretrained(hf_model_dir)
        self._model: Any = AutoModelForCausalLM.from_pretrained(hf_model_dir).eval()
        self._model.to(self._device)
        self._end_token_id: int = self._model.generation_config.eos_token_id
        self._context: int = self._model.config.max_position_embeddings

    def generate_all(self) -> Iterator[GeneratedSample]:
        """A sample for each prompt, in order.

        Raises:
            UserError: a prompt fills the model's context; known before anything is generated.
        """
        token_ids = [self._tokenize(prompt) for prompt in self._settings.prompts]
        for number, (prompt, ids) in enumerate(zip(self._settings.prompts, token_ids, strict=True), start=1):
            started = time.perf_counter()
            sample = self._generate(prompt, ids)
            rate = sample.num_new_tokens / (time.perf_counter() - started)
            count = len(token_ids)
            logger.info("Prompt %d of %d: %d tokens, %.1f tokens/s.", number, count, sample.num_new_tokens, rate)
            yield sample

    def _tokenize(self, prompt: str) -> list[int]:
        # An empty prompt starts like a new document: right after the end of another one.
        ids: list[int] = self._tokenizer(prompt)["input_ids"] or [self._end_token_id]
        if len(ids) >= self._context:
            raise UserError(
                f"The prompt {prompt[:40]!r}... has {len(ids)} tokens, which leaves no room in the model's context of "
                f"{self._context}. Shorten it."
            )
        return ids

    @torch.inference_mode()
    def _generate(self, prompt: str, prompt_ids: list[int]) -> GeneratedSample:
        room = self._context - len(prompt_ids)
        if room < self._settings.max_new_tokens:
            logger.warning("Prompt %r: only %d new tokens fit into the model's context.", prompt[:40], room)
        inputs = torch.tensor([prompt_ids], device=self._device)
        with torch.random.fork_rng():
            torch.manual_seed(prompt_seed(self._settings.seed, prompt))
            output = self._model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=min(room, self._settings.max_new_tokens),
                **self._sampling_options(),
            )
        new_ids: list[int] = output[0, len(prompt_ids) :].tolist()
        stopped = new_ids[-1] == self._end_token_id
        if stopped:
            new_ids.pop()
        # Decoded together with the prompt, for characters that begin in it; then the prompt's own text is cut off.
        start: str = self._tokenizer.decode(prompt_ids)
        text: str = self._tokenizer.decode(prompt_ids + new_ids)
        continuation = text[len(start) :] if text.startswith(start) else self._tokenizer.decode(new_ids)
        return GeneratedSample(prompt, continuation, len(new_ids), stopped)

    def _sampling_options(self) -> dict[str, Any]:
        if Sampling(self._settings.temperature).is_greedy:
            return {"do_sample": False}
        # transformers limits to the 50 likeliest tokens unless told otherwise; 0 is no limit.
        return {"do_sample": True, "temperature": self._settings.temperature, "top_k": self._settings.top_k or 0}
