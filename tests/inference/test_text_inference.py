"""Text from a model of this package: where it ends, what is asked for, what is refused."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from modalities_pipeline.exceptions import ConfigError, ModelStateError, UserError
from modalities_pipeline.inference.configs import TextInferenceComponentConfig
from modalities_pipeline.inference.text_inference import TextInferenceComponent
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

# hello -> world -> the -> cat -> <eod>, and sat -> on -> mat -> sat -> ...; see the tokenizer's vocabulary.
SUCCESSORS = {5: 6, 6: 7, 7: 8, 8: 1, 9: 10, 10: 11, 11: 9, 1: 5}
PADDED_VOCABULARY = 64


class _Successors(nn.Module):
    """A model that knows what follows each token; ids beyond the tokenizer's are likelier still."""

    def __init__(self, context: int = 12, scale: float = 4.0) -> None:
        super().__init__()
        self.config = SimpleNamespace(
            sample_key="tokens", prediction_key="scores", sequence_length=context, vocab_size=PADDED_VOCABULARY
        )
        table = torch.zeros(PADDED_VOCABULARY, PADDED_VOCABULARY)
        for token_id, successor in SUCCESSORS.items():
            table[token_id, successor] = scale
        table[:, 20:] = 2 * scale
        self.table = nn.Parameter(table)
        self.grad_was_enabled = False

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.grad_was_enabled |= torch.is_grad_enabled()
        return {"hidden": inputs["tokens"], "scores": self.table[inputs["tokens"]]}


@pytest.fixture
def make(tiny_wordlevel_dir: Path) -> Callable[..., TextInferenceComponent]:
    """Function changes -> a component; greedy, 12 tokens at most."""
    tokenizer = PreTrainedHFTokenizer(str(tiny_wordlevel_dir))

    def build(**changes: Any) -> TextInferenceComponent:
        arguments = {
            "model": _Successors(),
            "tokenizer": tokenizer,
            "prompt_template": "{prompt}",
            "sequence_length": 12,
            "temperature": 0.0,
            "device": "cpu",
        }
        return TextInferenceComponent(**{**arguments, **changes})

    return build


def test_text_stops_at_the_end_token_which_is_not_part_of_it(make):
    """See B073."""
    component = make()
    assert list(component.generate("hello")) == [" world", " the", " cat", ""]
    assert component.end_of_document


def test_text_stops_where_the_context_or_the_limit_ends(make):
    """See B075; the keys and the context are the model's own, and gradients are off."""
    component = make()
    assert "".join(component.generate(" ".join(["sat"] * 11))) == " on"
    assert not component.end_of_document
    assert "".join(make(max_new_tokens=2).generate("sat")) == " on mat"
    model = _Successors()
    list(make(model=model).generate("sat"))
    assert not model.grad_was_enabled


@pytest.mark.parametrize("length", [12, 13])
def test_a_prompt_that_fills_the_context_is_refused_at_once(length, make):
    """See B075."""
    with pytest.raises(UserError, match=f"has {length} tokens, which leaves no room in the sequence_length of 12"):
        make().generate(" ".join(["sat"] * length))


def test_an_empty_prompt_starts_a_new_document_if_there_is_an_end_token(make):
    """See B075."""
    assert "".join(make().generate("")).split() == ["hello", "world", "the", "cat"]
    with pytest.raises(UserError, match="The prompt is empty"):
        make(eod_token=None).generate("")


def test_without_an_end_token_only_the_limit_ends_the_text(make):
    component = make(eod_token=None)
    text = "".join(component.generate("hello")).split()
    assert text[:3] == ["world", "the", "cat"]
    assert len(text) > 8
    assert not component.end_of_document


def test_ids_that_no_token_stands_for_are_never_chosen(make):
    component = make(temperature=3.0, sequence_length=200, model=_Successors(context=200), eod_token=None)
    tokens = "".join(component.generate("sat")).split()
    assert len(tokens) == 199
    assert len(set(tokens)) > 5


def test_the_same_seed_gives_the_same_text(make):
    options = {"temperature": 2.0, "eod_token": None}

    def text(**changes: Any) -> str:
        return "".join(make(**options, **changes).generate("sat"))

    assert text(seed=1) == text(seed=1)
    assert text(seed=1) != text(seed=2)
    assert len({text(seed=None) for _ in range(5)}) > 1
    assert text(seed=1, top_k=1) == " on mat sat on mat sat on mat sat on mat"


def test_blanks_are_asked_for_and_prompt_and_text_are_printed(make, capsys):
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return "hello"

    make(prompt_template="{first} {first}").run(ask)
    assert asked == ["first: "]
    output = capsys.readouterr().out
    assert "hello hello\n" in output
    assert output.endswith(" world the cat\n<end of document>\n")
    make(prompt_template="sat", max_new_tokens=1).run(ask)
    assert asked == ["first: "]
    assert capsys.readouterr().out.endswith(" on\n<limit of tokens reached>\n")


def test_the_end_of_standard_input_is_one_message(make):
    def ask(question: str) -> str:
        raise EOFError

    with pytest.raises(UserError, match="needs 'prompt', but standard input has ended"):
        make().run(ask)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eod_token": "</s>"}, "the tokenizer has no token '</s>'"),
        ({"sequence_length": 13}, "sequence_length is 13, but the model takes 12 tokens at most"),
        ({"device": "gpu"}, "'gpu' is no device"),
    ],
)
def test_what_does_not_fit_together_is_refused_when_it_is_built(changes, message, make):
    with pytest.raises(ConfigError, match=message):
        make(**changes)


def test_a_tokenizer_that_does_not_fit_is_refused(make, tiny_wordlevel_dir):
    small = _Successors()
    small.config.vocab_size = 16
    with pytest.raises(ConfigError, match="has 20 token ids, more than the model's vocab_size"):
        make(model=small)
    padding = PreTrainedHFTokenizer(
        str(tiny_wordlevel_dir), padding="max_length", max_length=8, special_tokens={"pad_token": "<eod>"}
    )
    with pytest.raises(ConfigError, match="pads every text to 8 tokens"):
        make(tokenizer=padding)


def test_a_model_that_predicts_nothing_usable_is_named(make):
    model = _Successors()
    model.config.prediction_key = "logits"
    with pytest.raises(ConfigError, match=r"have no 'logits' \(they have hidden, scores\)"):
        list(make(model=model).generate("sat"))
    with pytest.raises(ModelStateError, match="are not numbers"):
        list(make(model=_Successors(scale=float("nan"))).generate("sat"))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"sequence_length": 0}, "sequence_length"),
        ({"device": "gpu"}, "device"),
        ({"chat": True}, "chat"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_anything_is_built(changes, key, tiny_wordlevel_dir):
    """See B074 and B077."""
    fields = {
        "model": _Successors(),
        "tokenizer": PreTrainedHFTokenizer(str(tiny_wordlevel_dir)),
        "prompt_template": "{prompt}",
        "sequence_length": 12,
        "device": 0,
    }
    assert TextInferenceComponentConfig(**fields).device == "cuda:0"
    with pytest.raises(ValidationError) as caught:
        TextInferenceComponentConfig(**{**fields, **changes})
    assert [error["loc"][0] for error in caught.value.errors()] == [key]
