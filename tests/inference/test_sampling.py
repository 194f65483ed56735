"""Choosing the next token."""

import math

import pytest
import torch

from modalities_pipeline.inference.sampling import Sampling, prompt_seed

LOGITS = torch.tensor([0.0, 3.0, 2.0, -math.inf, 1.0])


def _chosen(sampling: Sampling, logits: torch.Tensor = LOGITS, count: int = 300) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return [sampling.next_token_id(logits, generator) for _ in range(count)]


@pytest.mark.parametrize("temperature", [None, 0.0, 1e-9])
def test_no_temperature_is_greedy(temperature):
    """See B074."""
    assert set(_chosen(Sampling(temperature))) == {1}


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), {0, 1, 2, 4}),
        (Sampling(top_k=2), {1, 2}),
        (Sampling(top_k=1, temperature=9.0), {1}),
        (Sampling(top_k=99), {0, 1, 2, 4}),
        (Sampling(top_p=0.5), {1}),
        (Sampling(top_p=0.7), {1, 2}),
        (Sampling(top_p=1.0), {0, 1, 2, 4}),
        (Sampling(top_k=2, top_p=0.99), {1, 2}),
    ],
)
def test_only_likely_tokens_are_chosen_and_impossible_ones_never(sampling, expected):
    assert set(_chosen(sampling)) == expected


def test_tokens_are_as_frequent_as_they_are_probable():
    chosen = torch.tensor(_chosen(Sampling(2.0), count=4000))
    frequencies = torch.bincount(chosen, minlength=5) / 4000
    assert torch.allclose(frequencies, (LOGITS / 2.0).softmax(-1), atol=0.03)


def test_each_prompt_and_each_seed_has_its_own_numbers():
    assert prompt_seed(0, "a") == prompt_seed(0, "a")
    assert len({prompt_seed(0, "a"), prompt_seed(0, "b"), prompt_seed(1, "a")}) == 3
