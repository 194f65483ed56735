"""Initial weights.

Every parameter is drawn as a full tensor on the CPU from a generator seeded by the model's seed and the parameter's
name, then distributed. So the weights do not depend on the number of ranks, the device, or the order of layers.
"""

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from modalities_pipeline.config.component import only_part
from modalities_pipeline.exceptions import ConfigError, ModelStateError
from modalities_pipeline.models.initialization_configs import (
    ComposedModelInitializationConfig,
    SupportWeightInitModels,
    WeightInitTypes,
)
from modalities_pipeline.models.model import NNModel
from modalities_pipeline.models.parameters import copy_full_tensor, materialize

# What wrappers put into parameter names: torch.compile and activation checkpointing.
_WRAPPER_PREFIXES = ("_orig_mod.", "_checkpoint_wrapped_module.")
_EMBED_STD = math.sqrt(0.4)
_BLOCK = r"transformer\.h\.(\d+)\."

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

    Raises on use:
        ModelStateError: no rule matches a parameter of a linear or embedding layer.
    """

    def __init__(self, rules: list[InitializationRule]) -> None:
        self.rules = rules

    @torch.no_grad()
    def initialize_in_place(self, model: nn.Module) -> None:
        """Fill all parameters that a rule matches; norms may be left to `reset_parameters`."""
        seed = model.seed if isinstance(model, NNModel) else 0
        unmatched = {name for name, _ in _parameters(model) if self._rule(name) is None}
        lost = sorted(unmatched & _names_in_linears_and_embeddings(model))
        if lost:
            raise ModelStateError(f"No initialisation rule matches these parameters: {', '.join(lost)}.")
        for name, parameter in _parameters(model):
            rule = self._rule(name)
            if rule is not None:
                full = torch.empty(parameter.shape, dtype=torch.float32)
                rule.draw(full, _generator(seed, name))
                copy_full_tensor(parameter, full)

    def _rule(self, name: str) -> InitializationRule | None:
        return next((rule for rule in reversed(self.rules) if re.fullmatch(rule.pattern, name)), None)


def get_initialized_model(model: nn.Module | list[nn.Module], model_initializer: ModelInitializationIF) -> nn.Module:
    """Give a model memory where it has none (meta device), then its initial weights; returns the same object.

    Raises:
        ModelStateError: only a part of the model is on the meta device, or some weights would stay uninitialised.
        ConfigError: there are several models.
    """
    model = only_part(model, "model_initialized")
    materialize(model)
    with torch.no_grad():
        for module in model.modules():
            reset = getattr(module, "reset_parameters", None)
            # Linears and embeddings would draw from the global generator; the initialiser is in charge of them.
            if callable(reset) and not isinstance(module, nn.Linear | nn.Embedding):
                reset()
    model_initializer.initialize_in_place(model)
    return model


def get_composed_model_initializer(
    model_type: SupportWeightInitModels | Literal["gpt2", "coca"],
    weight_init_type: WeightInitTypes,
    mean: float,
    std: float | Literal["auto"],
    hidden_dim: int | None = None,
    num_layers: int | None = None,
) -> RuleBasedInitializer:
    """Normal weights, zero biases; scaled: smaller output projections; scaled_embed: large embeddings as well.

    Raises:
        ConfigError: the model is one whose parameters are not known here.
    """
    config = ComposedModelInitializationConfig(
        model_type=SupportWeightInitModels(model_type),
        weight_init_type=weight_init_type,
        mean=mean,
        std=std,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
    )
    if config.model_type is not SupportWeightInitModels.GPT2:
        raise ConfigError(f"composed: models of type {config.model_type.value} cannot be initialised here, only gpt2.")
    plain_std = math.sqrt(2 / (5 * config.hidden_dim)) if config.hidden_dim is not None else float(config.std)
    layers = _BLOCK + r"(attn\.(q_attn|k_attn|v_attn|c_proj)|mlp\.(W|V|W_2|c_fc|c_proj))\."
    embeddings = r"transformer\.(wte|wpe|lm_head)\.weight"
    rules = [
        InitializationRule(layers + "weight", _normal(mean, plain_std)),
        InitializationRule(layers + "bias", _zeros),
        InitializationRule(embeddings, _normal(mean, plain_std)),
    ]
    if config.num_layers is not None:
        outputs = _BLOCK + r"(attn\.c_proj|mlp\.(W_2|c_proj))\.weight"
        rules.append(InitializationRule(outputs, _normal(mean, plain_std / math.sqrt(2 * config.num_layers))))
    if config.weight_init_type is WeightInitTypes.SCALED_EMBED:
        rules.append(InitializationRule(embeddings, _normal(mean, _EMBED_STD)))
    return RuleBasedInitializer(rules)


class GPT2Llama3LikeInitializer(RuleBasedInitializer):
    """The scheme of torchtitan's Llama 3, for SwiGLU models with untied head and without biases."""

    def __init__(self, num_layers: int, n_embd: int, depth_init: bool = True) -> None:
        head_std = 1 / math.sqrt(n_embd)
        rules = [
            InitializationRule(r"transformer\.wte\.weight", _normal(0.0, 1.0)),
            InitializationRule(r"transformer\.lm_head\.weight", _truncated_normal(head_std, 3 * head_std)),
            InitializationRule(_BLOCK + r"(attn\.[qkv]_attn|mlp\.W)\.weight", _truncated_normal(0.02, 2.0)),
        ]
        for layer in range(num_layers):
            std = 0.02 / math.sqrt(2 * (layer + 1 if depth_init else num_layers))
            pattern = rf"transformer\.h\.{layer}\.(attn\.c_proj|mlp\.(V|W_2))\.weight"
            rules.append(InitializationRule(pattern, _truncated_normal(std, 2.0)))
        super().__init__(rules)

    def initialize_in_place(self, model: nn.Module) -> None:
        """Fill the model.

        Raises:
            ConfigError: the model has biases, a tied head, another feed-forward network, or not `num_layers` layers.
        """
        names = [name for name, _ in _parameters(model)]
        biases = [name for name in names if name.endswith("bias")]
        if biases:
            raise ConfigError(f"gpt2_llama3_like is for models without biases, but there is {biases[0]}. Use composed.")
        for rule in self.rules:
            if not any(re.fullmatch(rule.pattern, name) for name in names):
                raise ConfigError(
                    f"gpt2_llama3_like: no parameter is called like {rule.pattern}. It is for SwiGLU models with "
                    "untied head; num_layers must be the model's. Otherwise use composed."
                )
        super().initialize_in_place(model)


def normalized_name(name: str) -> str:
    """A parameter's name without what torch.compile and activation checkpointing put into it."""
    for prefix in _WRAPPER_PREFIXES:
        name = name.replace(prefix, "")
    return name


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((normalized_name(name), parameter) for name, parameter in model.named_parameters())


def _names_in_linears_and_embeddings(model: nn.Module) -> set[str]:
    return {
        normalized_name(f"{module_name}.{name}")
        for module_name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Embedding)
        for name, _ in module.named_parameters(recurse=False)
    }


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def _normal(mean: float, std: float) -> Draw:
    def draw(tensor: torch.Tensor, generator: torch.Generator) -> None:
        tensor.normal_(mean, std, generator=generator)

    return draw


def _truncated_normal(std: float, bound: float) -> Draw:
    def draw(tensor: torch.Tensor, generator: torch.Generator) -> None:
        nn.init.trunc_normal_(tensor, 0.0, std, -bound, bound, generator=generator)

    return draw


def _zeros(tensor: torch.Tensor, generator: torch.Generator) -> None:
    tensor.zero_()
