"""The generated_text stage: where text ends, what it depends on, what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.exceptions import UserError
from modalities_pipeline.inference.generated_text import build_generated_text, identity
from modalities_pipeline.inference.samples import GeneratedSample, read_generated_text, samples_as_markdown
from modalities_pipeline.inference.settings import GenerationSettings

# hello -> world -> the -> cat -> <eod>, and sat -> on -> mat -> sat -> ...; see the tokenizer's vocabulary.
SUCCESSORS = {5: 6, 6: 7, 7: 8, 8: 1, 9: 10, 10: 11, 11: 9, 1: 5}
CONTEXT = 12


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory, tiny_wordlevel_dir: Path) -> Path:
    """A model folder whose likeliest next token is known: attention and feed-forward add nothing."""
    path = tmp_path_factory.mktemp("model")
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=32,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=CONTEXT,
        eos_token_id=1,
        bos_token_id=1,
        pad_token_id=1,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.model.layers.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(20, 32))
        model.lm_head.weight.zero_()
        for token, successor in SUCCESSORS.items():
            model.lm_head.weight[successor, token] = 0.8
    model.generation_config = GenerationConfig(eos_token_id=1, bos_token_id=1, pad_token_id=1)
    model.save_pretrained(path)
    AutoTokenizer.from_pretrained(tiny_wordlevel_dir).save_pretrained(path)
    return path


@pytest.fixture
def generate(model_dir: Path, tmp_path: Path) -> Callable[..., list[GeneratedSample]]:
    """Function settings -> samples, through the stage."""

    def run(**settings: Any) -> list[GeneratedSample]:
        validated = GenerationSettings(**settings)
        stage_identity = identity("sha256:model", validated)
        output_dir = tmp_path / "text"
        build_generated_text(model_dir, output_dir, validated, FileExistencePolicy.OVERRIDE, stage_identity)
        return read_generated_text(output_dir)

    return run


def test_text_stops_at_the_end_token_which_is_not_part_of_it(generate):
    """See B073."""
    (sample,) = generate(prompts=["hello"], temperature=0, max_new_tokens=8)
    assert sample == GeneratedSample("hello", " world the cat", 3, stopped_at_eod=True)


def test_text_stops_at_the_limit(generate):
    (sample,) = generate(prompts=["sat"], temperature=0, max_new_tokens=4)
    assert sample == GeneratedSample("sat", " on mat sat on", 4, stopped_at_eod=False)


@pytest.mark.parametrize("temperature", [0, 1e-9, 1e-320])
def test_temperature_zero_and_tiny_ones_are_greedy(temperature, generate):
    """See B074."""
    (sample,) = generate(prompts=["sat"], temperature=temperature, max_new_tokens=6)
    assert sample.continuation == " on mat sat on mat sat"


def test_text_depends_on_seed_and_prompt_and_not_on_other_prompts(generate):
    settings = {"temperature": 2.0, "max_new_tokens": 8}
    together = generate(prompts=["sat", "a b", "sat on"], seed=1, **settings)
    alone = generate(prompts=["sat on"], seed=1, **settings)
    assert together[2] == alone[0]
    assert generate(prompts=["sat on"], seed=2, **settings) != alone


def test_top_k_of_one_is_greedy_whatever_the_temperature(generate):
    (sample,) = generate(prompts=["sat"], temperature=5.0, top_k=1, max_new_tokens=6)
    assert sample.continuation == " on mat sat on mat sat"


def test_an_empty_prompt_starts_a_new_document(generate):
    (sample,) = generate(prompts=[""], temperature=0, max_new_tokens=8)
    assert sample.prompt == ""
    assert sample.continuation.split() == ["hello", "world", "the", "cat"]


def test_text_ends_where_the_context_ends(generate):
    """See B075."""
    prompt = " ".join(["sat"] * (CONTEXT - 1))
    (sample,) = generate(prompts=[prompt], temperature=0, max_new_tokens=8)
    assert (sample.continuation, sample.num_new_tokens) == (" on", 1)


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1])
def test_a_prompt_that_fills_the_context_is_refused_before_anything_is_written(length, generate, tmp_path):
    """See B075."""
    with pytest.raises(
        UserError, match=f"has {length} tokens, which leaves no room in the model's context of {CONTEXT}"
    ):
        generate(prompts=["hello", " ".join(["sat"] * length)], temperature=0)
    assert not (tmp_path / "text").exists()


def test_manifest_counts_and_shows_the_samples(model_dir, tmp_path):
    settings = GenerationSettings(prompts=["hello", "sat"], temperature=0, max_new_tokens=4)
    stage_identity = identity("sha256:model", settings)
    manifest = build_generated_text(model_dir, tmp_path / "text", settings, FileExistencePolicy.ERROR, stage_identity)
    assert manifest.counts["num_prompts"] == 2
    assert manifest.counts["num_new_tokens"] == 7
    assert manifest.counts["num_new_tokens_per_s"] > 0
    assert manifest.details["samples"] == json.loads((tmp_path / "text" / "generated_text.json").read_text("utf-8"))
    markdown = (tmp_path / "text" / "generated_text.md").read_text("utf-8")
    assert " world the cat" in markdown
    assert "end of document" in markdown
    assert (
        build_generated_text(model_dir, tmp_path / "text", settings, FileExistencePolicy.SKIP, stage_identity) is None
    )


def test_backticks_in_the_text_do_not_end_its_code_block():
    markdown = samples_as_markdown([GeneratedSample("```", "a ```` b", 2, stopped_at_eod=True)])
    assert "````text\n```\n````" in markdown
    assert "`````text\na ```` b\n`````" in markdown


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"top_k": 0}, "top_k"),
        ({"prompts": []}, "prompts"),
        ({"temprature": 1.0}, "temprature"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, key):
    """See B074 and B077."""
    with pytest.raises(ValidationError) as caught:
        GenerationSettings(**{"prompts": ["hello"], **changes})
    assert [error["loc"][0] for error in caught.value.errors()] == [key]
