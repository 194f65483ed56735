"""How a model is cut into the stages of a pipeline. Imports no torch."""

import math
from abc import ABC, abstractmethod

from modalities_pipeline.exceptions import ConfigError


class StagesGenerator(ABC):
    """Cuts a model into stages of about the same work."""

    @abstractmethod
    def units(self) -> list[tuple[list[str], int]]:
        """What cannot be cut further, in the order of the forward pass: (names of modules, work in layers)."""

    def num_stages(self, num_layers_per_stage: int, pp_dims: int) -> int:
        """Number of stages on all ranks.

        Raises:
            ConfigError: the stages cannot be spread evenly over `pp_dims` ranks, or a unit is too large for a stage.
        """
        units = self.units()
        total = sum(work for _, work in units)
        num_stages = math.ceil(total / num_layers_per_stage)
        if num_stages % pp_dims:
            raise ConfigError(
                f"{total} layers (embedding and head counted as layers) make {num_stages} stages with "
                f"num_layers_per_stage {num_layers_per_stage}, which is not divisible by the {pp_dims} ranks of the "
                "pipeline. Change num_layers_per_stage."
            )
        capacity = math.ceil(total / num_stages)
        for names, work in units:
            if work > capacity:
                raise ConfigError(
                    f"{', '.join(names)} count as {work} layers, more than the {capacity} of a stage. Raise "
                    "num_layers_per_stage, or lower input_layer_equivalence and output_layer_equivalence."
                )
        return num_stages

    def get_stages(self, num_layers_per_stage: int, pp_dims: int) -> list[list[str]]:
        """Names of the modules of each stage, for a pipeline of `pp_dims` ranks; each stage is filled before the next.

        Raises:
            ConfigError: as `num_stages`.
        """
        num_stages = self.num_stages(num_layers_per_stage, pp_dims)
        units = self.units()
        capacity = math.ceil(sum(work for _, work in units) / num_stages)
        stages: list[list[str]] = [[]]
        filled = 0
        for names, work in units:
            if filled + work > capacity:
                stages.append([])
                filled = 0
            stages[-1].extend(names)
            filled += work
        return stages


class GPT2LLMStagesGenerator(StagesGenerator):
    """Cuts a gpt2 model.

    Args:
        num_model_layers: number of its blocks.
        input_layer_equivalence, output_layer_equivalence: as how many blocks the embeddings and the head count.
    """

    def __init__(
        self, num_model_layers: int, input_layer_equivalence: int = 1, output_layer_equivalence: int = 1
    ) -> None:
        self.num_model_layers = num_model_layers
        self.input_layer_equivalence = input_layer_equivalence
        self.output_layer_equivalence = output_layer_equivalence

    def units(self) -> list[tuple[list[str], int]]:
        """Embeddings, each block, and the head with its norm."""
        embeddings = ["transformer.wte", "transformer.wpe", "transformer.drop"]
        head = ["transformer.lm_head_norm", "transformer.lm_head"]
        blocks: list[tuple[list[str], int]] = [
            ([f"transformer.h.{layer}"], 1) for layer in range(self.num_model_layers)
        ]
        return [(embeddings, self.input_layer_equivalence), *blocks, (head, self.output_layer_equivalence)]
