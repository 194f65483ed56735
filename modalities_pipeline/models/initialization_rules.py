"""Initial weights by rules on parameter names.

Every parameter is drawn as a full tensor on the CPU from a generator seeded by the model's seed and the parameter's
name, then distributed. So the weights do not depend on the number of ranks, the device, or the order of layers.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from modalities_pipeline.exceptions import ModelStateError
from modalities_pipeline.models.model import NNModel
from modalities_pipeline.models.parameters import copy_full_tensor, normalized_name

_MOST_NAMES_IN_MESSAGES = 5

# Layers of which torch draws the weights from its global generator; here only rules decide them.
DRAWING_LAYERS = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d)

Draw = Callable[[torch.Tensor, torch.Generator], None]


class ModelInitializationIF(ABC):
    """Sets the weights of a model."""

    @abstractmethod
    def initialize_in_place(self, model: nn.Module) -> None:
        """Set the weights of a model that has memory; sharded models are welcome."""


@dataclass(frozen=True)
class InitializationRule:
    """Parameters whose whole name matches `pattern` are filled by `draw`."""

    pattern: str
    draw: Draw


class RuleBasedInitializer(ModelInitializationIF):
    """Fills each parameter by the last rule that matches its name.

    Names are those without what wrappers put in. In memory is one full parameter at a time, in float32.
    """

    def __init__(self, rules: list[InitializationRule]) -> None:
        self.rules = rules

    @torch.no_grad()
    def initialize_in_place(self, model: nn.Module) -> None:
        """Fill all parameters that a rule matches; norms may be left to `reset_parameters`.

        Raises:
            ModelStateError: no rule matches a parameter of a linear, embedding or convolution.
        """
        unmatched = {name for name, _ in named_parameters_of(model) if self._rule(name) is None}
        lost = sorted(unmatched & _names_in_drawing_layers(model))
        if lost:
            raise ModelStateError(
                f"No initialisation rule matches these parameters: {listed(lost)}. Use an initialisation for this kind "
                "of model."
            )
        seed = seed_of(model)
        for name, parameter in named_parameters_of(model):
            rule = self._rule(name)
            if rule is not None:
                _fill(parameter, rule.draw, _generator(seed, name))

    def _rule(self, name: str) -> InitializationRule | None:
        return next((rule for rule in reversed(self.rules) if re.fullmatch(rule.pattern, name)), None)


def seed_of(model: nn.Module) -> int:
    """The seed of a model, or of the model inside of a wrapper such as FSDP1; 0 where there is none."""
    return next((module.seed for module in model.modules() if isinstance(module, NNModel)), 0)


def named_parameters_of(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Each parameter once, under its name without what wrappers put in."""
    return ((normalized_name(name), parameter) for name, parameter in model.named_parameters())


def listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _MOST_NAMES_IN_MESSAGES
    return ", ".join(names[:_MOST_NAMES_IN_MESSAGES]) + (f" and {more} more" if more > 0 else "")


def normal(mean: float, std: float) -> Draw:
    """Draws from a normal distribution."""

    def draw(tensor: torch.Tensor, generator: torch.Generator) -> None:
        tensor.normal_(mean, std, generator=generator)

    return draw


def truncated_normal(std: float, bound: float) -> Draw:
    """Draws from a normal distribution of mean 0, cut at `bound` on either side."""

    def draw(tensor: torch.Tensor, generator: torch.Generator) -> None:
        nn.init.trunc_normal_(tensor, 0.0, std, -bound, bound, generator=generator)

    return draw


def zeros(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Sets all to zero."""
    tensor.zero_()


def _fill(parameter: nn.Parameter, draw: Draw, generator: torch.Generator) -> None:
    """A function of its own, so that the full tensor is gone before the next one is made."""
    full = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
    draw(full, generator)
    copy_full_tensor(parameter, full)


def _names_in_drawing_layers(model: nn.Module) -> set[str]:
    return {
        normalized_name(f"{module_name}.{name}")
        for module_name, module in model.named_modules()
        if isinstance(module, DRAWING_LAYERS)
        for name, _ in module.named_parameters(recurse=False)
    }


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator(device="cpu").manual_seed(int.from_bytes(digest[:7], "little"))
