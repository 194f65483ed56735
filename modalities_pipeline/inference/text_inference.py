"""Text from a model of this package, token by token."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from modalities_pipeline.checkpointing.torch_loading import usable_device
from modalities_pipeline.config.overlays import Override
from modalities_pipeline.exceptions import ConfigError, ModelStateError, UserError
from modalities_pipeline.inference.prompts import fill_in, placeholders
from modalities_pipeline.inference.sampling import Sampling, prompt_seed
from modalities_pipeline.inference.streaming import TextStream
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

# What models without such attributes call their input and output in Modalities.
_KEYS = {"sample_key": "input_ids", "prediction_key": "logits"}


class TextInferenceComponent:
    """Goes on with a prompt until the end of the document, or until there is no more room.

    Attributes:
        end_of_document: whether the last text ended with the end-of-document token, and not for want of room.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: TokenizerWrapper,
        prompt_template: str,
        sequence_length: int,
        device: str | int | None,
        temperature: float | None = 1.0,
        eod_token: str | None = "<eod>",
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = 0,
        max_new_tokens: int | None = None,
    ) -> None:
        """Move the model to the device and find out what it and the tokenizer call things.

        Args:
            model: maps a dict of token ids of shape (1, T) to a dict of logits of shape (1, T, ids).
            tokenizer: the one that the model was trained with.
            prompt_template: prompt in which `{name}` is a blank to be filled in; see `inference.prompts`.
            sequence_length: number of tokens, prompt included, at which the text ends at the latest.
            device: as in `config.device_names`.
            temperature, top_k, top_p: see `inference.sampling.Sampling`.
            eod_token: the token that ends a document; None: no token ends it.
            seed: the same one gives the same text for the same prompt; None: another text each time.
            max_new_tokens: number of tokens at which the text ends, prompt not included; None: as many as fit.

        Raises:
            ConfigError: the tokenizer has no such end token, pads texts, or has more ids than the model; the model
                cannot take `sequence_length` tokens; or the device is not here.
        """
        self._device = usable_device(device)
        self._model = model.to(self._device).eval()
        self._tokenizer = tokenizer
        self._prompt_template = prompt_template
        self._max_num_tokens = sequence_length
        self._max_new_tokens = max_new_tokens
        self._sampling = Sampling(temperature, top_k, top_p)
        self._seed = seed
        self._eod_token_id = _eod_token_id(tokenizer, eod_token)
        self._sample_key = _find(model, "sample_key") or _KEYS["sample_key"]
        self._prediction_key = _find(model, "prediction_key") or _KEYS["prediction_key"]
        self.end_of_document = False
        _check_fit(model, tokenizer, sequence_length)

    def run(self, ask: Callable[[str], str] = input) -> None:
        """Ask for what is missing in the prompt, and print the prompt and how the model goes on.

        Raises:
            UserError: standard input ends before all is answered, or the prompt leaves no room for more.
        """
        values = {name: _answer(ask, name) for name in placeholders(self._prompt_template)}
        prompt = fill_in(self._prompt_template, values)
        pieces = self.generate(prompt)
        print(f"\n{' PROMPT '.center(40, '-')}\n{prompt}\n{' OUTPUT '.center(40, '-')}", flush=True)
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
        print("\n<end of document>" if self.end_of_document else "\n<limit of tokens reached>", flush=True)

    def generate(self, prompt: str) -> Iterator[str]:
        """The text that follows a prompt, piece by piece; the end token is not in it.

        An empty prompt starts like a new document, right after the end of another one.

        Raises:
            UserError: at once, not with the first piece: the prompt has as many tokens as fit, or none and there is no
                end token to begin with.
            ModelStateError, ConfigError: with a piece: the model predicts no numbers, or nothing by the name of
                `prediction_key`.
        """
        token_ids = self._tokenizer.tokenize(prompt)
        if not token_ids and self._eod_token_id is not None:
            token_ids = [self._eod_token_id]
        if not token_ids:
            raise UserError("The prompt is empty. Write one, or set eod_token to begin with a new document.")
        room = self._max_num_tokens - len(token_ids)
        if room < 1:
            raise UserError(
                f"The prompt {prompt[:40]!r}... has {len(token_ids)} tokens, which leaves no room in the "
                f"sequence_length of {self._max_num_tokens}. Shorten it."
            )
        generator = torch.Generator(self._device)
        if self._seed is None:
            generator.seed()
        else:
            generator.manual_seed(prompt_seed(self._seed, prompt))
        return self._stream(token_ids, min(room, self._max_new_tokens or room), generator)

    def _stream(self, token_ids: list[int], num_new_tokens: int, generator: torch.Generator) -> Iterator[str]:
        stream = TextStream(self._tokenizer.decode, token_ids)
        self.end_of_document = False
        for _ in range(num_new_tokens):
            token_id = self._sampling.next_token_id(self._next_logits(token_ids), generator)
            if token_id == self._eod_token_id:
                self.end_of_document = True
                break
            token_ids = [*token_ids, token_id]
            yield stream.push(token_id)
        yield stream.finish()

    @torch.inference_mode()
    def _next_logits(self, token_ids: list[int]) -> torch.Tensor:
        predictions = self._model({self._sample_key: torch.tensor([token_ids], device=self._device)})
        if self._prediction_key not in predictions:
            raise ConfigError(
                f"The model's predictions have no '{self._prediction_key}' (they have {', '.join(predictions)}). "
                "Its attribute prediction_key has to say which are the logits."
            )
        logits = predictions[self._prediction_key][0, -1]
        if logits.isnan().any():
            raise ModelStateError(
                "The model's logits are not numbers (NaN). Use a checkpoint from before that happened."
            )
        # A vocabulary is padded to a round size; the model must not say what no token stands for.
        logits[self._tokenizer.num_token_ids :] = -math.inf
        return logits


def generate_text(config_file_path: Path, overrides: Sequence[Override] = ()) -> None:
    """Build what a YAML file describes (see `config.schemas.text_generation`), and let it run.

    Args:
        config_file_path: the YAML file.
        overrides: set in it.

    Raises:
        ConfigError: the file or what it names is wrong.
        UserError: see `TextInferenceComponent.run`.
    """
    from modalities_pipeline.config.schemas.text_generation import TextGenerationInstantiationModel
    from modalities_pipeline.main import Main

    components = Main(config_file_path, overrides=overrides).build_components(TextGenerationInstantiationModel)
    components.text_inference_component.run()


def _check_fit(model: nn.Module, tokenizer: TokenizerWrapper, sequence_length: int) -> None:
    if tokenizer.padded_length is not None:
        raise ConfigError(f"The tokenizer pads every text to {tokenizer.padded_length} tokens. Set padding: false.")
    context = _find(model, "sequence_length")
    if isinstance(context, int) and context < sequence_length:
        raise ConfigError(f"sequence_length is {sequence_length}, but the model takes {context} tokens at most.")
    vocab_size = _find(model, "vocab_size")
    if isinstance(vocab_size, int) and vocab_size < tokenizer.num_token_ids:
        raise ConfigError(
            f"The tokenizer has {tokenizer.num_token_ids} token ids, more than the model's vocab_size ({vocab_size}). "
            "It is not the tokenizer that the model was trained with."
        )


def _eod_token_id(tokenizer: TokenizerWrapper, eod_token: str | None) -> int | None:
    if eod_token is None:
        return None
    token_id = tokenizer.find_token_id(eod_token)
    if token_id is None:
        raise ConfigError(
            f"eod_token: the tokenizer has no token {eod_token!r} (special tokens: "
            f"{', '.join(tokenizer.special_tokens)}). Name the one that the data was packed with, or null if none "
            "ends a document."
        )
    return token_id


def _find(model: nn.Module, name: str) -> Any:
    """An attribute of a model or of its config; None if neither has it."""
    return getattr(model, name, None) or getattr(getattr(model, "config", None), name, None)


def _answer(ask: Callable[[str], str], name: str) -> str:
    try:
        return ask(f"{name}: ")
    except (EOFError, RuntimeError):  # the latter if there is no standard input at all
        raise UserError(
            f"The prompt needs '{name}', but standard input has ended. Answer there, one line each."
        ) from None
