"""Settings of text generation."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat


class GenerationSettings(BaseModel):
    """What to generate, and how.

    Temperature 0 means greedy: always the likeliest token. `top_k` None means no limit. Each prompt has its own random
    numbers, derived from `seed` and the prompt, so its text does not depend on the other prompts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompts: Annotated[list[str], Field(min_length=1)]
    max_new_tokens: Annotated[int, Field(strict=True, ge=1)] = 64
    temperature: Annotated[FiniteFloat, Field(ge=0.0)] = 0.8
    top_k: Annotated[int, Field(strict=True, ge=1)] | None = None
    seed: Annotated[int, Field(strict=True)] = 0
