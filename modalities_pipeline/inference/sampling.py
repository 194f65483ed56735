"""Choosing the next token from a model's logits."""

import dataclasses
import hashlib
import math

import torch

# Below it all of the probability is on one token already, and the division could overflow.
GREEDY_TEMPERATURE = 1e-6


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: logits are divided by it; None, 0 or tiny: the likeliest token is taken.
        top_k: number of likeliest tokens among which to choose; None: all.
        top_p: the likeliest tokens whose probabilities, the temperature applied, first add up to it are chosen among;
            None: all.
    """

    temperature: float | None = 1.0
    top_k: int | None = None
    top_p: float | None = None

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken, and no random number is needed."""
        return self.temperature is None or self.temperature < GREEDY_TEMPERATURE

    def next_token_id(self, logits: torch.Tensor, generator: torch.Generator) -> int:
        """The id of the next token, from logits of shape (number of ids,); -inf is never chosen."""
        if self.is_greedy or self.temperature is None:
            return int(logits.argmax())
        logits = logits.float() / self.temperature
        if self.top_k is not None:
            smallest = logits.topk(min(self.top_k, logits.shape[-1])).values[-1]
            logits = logits.masked_fill(logits < smallest, -math.inf)
        probabilities = logits.softmax(dim=-1)
        if self.top_p is not None:
            ordered, order = probabilities.sort(descending=True, stable=True)
            ordered = ordered.masked_fill(ordered.cumsum(dim=-1) - ordered >= self.top_p, 0.0)
            probabilities = torch.zeros_like(probabilities).scatter(-1, order, ordered)
        return int(torch.multinomial(probabilities, 1, generator=generator))


def prompt_seed(seed: int, prompt: str) -> int:
    """A seed for each prompt, so that its text does not depend on what was generated before."""
    digest = hashlib.sha256(f"{seed}:{prompt}".encode()).digest()
    return int.from_bytes(digest[:7], "little")
