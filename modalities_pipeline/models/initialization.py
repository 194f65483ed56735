"""The initialisations of the table, and `model_initialized`, which gives a model memory and weights by one of them."""

import itertools
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from modalities_pipeline.config.model_parts import for_each_part
from modalities_pipeline.exceptions import ConfigError, ModelStateError
from modalities_pipeline.models.initialization_configs import (
    ComposedModelInitializationConfig,
    SupportWeightInitModels,
    WeightInitTypes,
)
from modalities_pipeline.models.initialization_names import PARAMETER_NAMES
from modalities_pipeline.models.initialization_rules import (
    DRAWING_LAYERS,
    InitializationRule,
    ModelInitializationIF,
    RuleBasedInitializer,
    listed,
    named_parameters_of,
    normal,
    seed_of,
    truncated_normal,
    zeros,
)
from modalities_pipeline.models.model import seeded_construction
from modalities_pipeline.models.parameters import materialize, normalized_name

_EMBED_STD = math.sqrt(0.4)
_BLOCK = r"transformer\.h\.(\d+)\."


@for_each_part("model")
def get_initialized_model(model: nn.Module, model_initializer: ModelInitializationIF) -> nn.Module:
    """Give a model memory where it has none (meta device), then its initial weights; returns the same object.

    FSDP1 shows full parameters only if all are gathered, so such a model is in memory as a whole for a moment.

    Raises:
        ModelStateError: only a part of the model is on the meta device, or some weights would stay uninitialised.
    """
    with _full_parameters(model):
        had_no_memory = materialize(model)
        if had_no_memory:
            _fill_with_nan(model)
        _reset(model)
        model_initializer.initialize_in_place(model)
        if had_no_memory:
            _refuse_nan(model)
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

    Norms keep their ones and zeros. CoCa's text class token is drawn as embeddings are, the class token of images is
    zero and the vision queries are standard normal, as when they are built; its `scaled` is about the projections of
    attention and feed-forward networks that are added to the residual stream, in the vision transformer as well.
    """
    config = ComposedModelInitializationConfig(
        model_type=SupportWeightInitModels(model_type),
        weight_init_type=weight_init_type,
        mean=mean,
        std=std,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
    )
    plain_std = math.sqrt(2 / (5 * config.hidden_dim)) if config.hidden_dim is not None else float(config.std)
    names = PARAMETER_NAMES[config.model_type]
    rules = [
        *names.constant_rules,
        InitializationRule(names.layers + "weight", normal(mean, plain_std)),
        InitializationRule(names.layers + "bias", zeros),
        InitializationRule(names.embeddings, normal(mean, plain_std)),
    ]
    if config.num_layers is not None:
        scaled_std = plain_std / math.sqrt(2 * config.num_layers)
        rules.append(InitializationRule(names.residual_outputs, normal(mean, scaled_std)))
    if config.weight_init_type is WeightInitTypes.SCALED_EMBED:
        rules.append(InitializationRule(names.embeddings, normal(mean, _EMBED_STD)))
    return RuleBasedInitializer(rules)


class GPT2Llama3LikeInitializer(RuleBasedInitializer):
    """The scheme of torchtitan's Llama 3, for SwiGLU models with untied head and without biases.

    A model may be a stage of a pipeline, which lacks the layers of other stages.
    """

    def __init__(self, num_layers: int, n_embd: int, depth_init: bool = True) -> None:
        head_std = 1 / math.sqrt(n_embd)
        rules = [
            InitializationRule(r"transformer\.wte\.weight", normal(0.0, 1.0)),
            InitializationRule(r"transformer\.lm_head\.weight", truncated_normal(head_std, 3 * head_std)),
            InitializationRule(_BLOCK + r"(attn\.[qkv]_attn|mlp\.W)\.weight", truncated_normal(0.02, 2.0)),
        ]
        for layer in range(num_layers):
            std = 0.02 / math.sqrt(2 * (layer + 1 if depth_init else num_layers))
            pattern = rf"transformer\.h\.{layer}\.(attn\.c_proj|mlp\.(V|W_2))\.weight"
            rules.append(InitializationRule(pattern, truncated_normal(std, 2.0)))
        super().__init__(rules)
        self.num_layers = num_layers

    def initialize_in_place(self, model: nn.Module) -> None:
        """Fill the model.

        Raises:
            ConfigError: the model has biases, a tied head, another feed-forward network, or not `num_layers` layers.
        """
        fault = next(self._faults(model), None)
        if fault:
            raise ConfigError(f"gpt2_llama3_like: {fault}. Use composed, or change the model.")
        super().initialize_in_place(model)

    def _faults(self, model: nn.Module) -> Iterator[str]:
        names = [name for name, _ in named_parameters_of(model)]
        tied = {normalized_name(name) for name, _ in model.named_parameters(remove_duplicate=False)} - set(names)
        yield from (f"it is for models without biases, but there is {name}" for name in names if name.endswith("bias"))
        yield from (f"it is for SwiGLU models, but there is {name}" for name in names if re.search(r"\.mlp\.c_", name))
        yield from (f"it is for models with untied head, but {name} is another parameter, too" for name in sorted(tied))
        layers = [int(match[1]) for name in names if (match := re.match(_BLOCK, name))]
        has_last_layer = "transformer.lm_head.weight" in names
        num_layers = max(layers, default=-1) + 1
        if num_layers > self.num_layers or (layers and has_last_layer and num_layers != self.num_layers):
            yield f"num_layers is {self.num_layers}, but the model has {num_layers} layers"


def _full_parameters(model: nn.Module) -> AbstractContextManager[None]:
    """The context in which FSDP1, which has such a method, shows whole parameters and takes over their values."""
    gather: Callable[[nn.Module], AbstractContextManager[None]] | None = getattr(model, "summon_full_params", None)
    return nullcontext() if gather is None else gather(model)


def _reset(model: nn.Module) -> None:
    """Let modules write what they are made with: gains and biases of norms, tables and masks in buffers."""
    with torch.no_grad(), seeded_construction(seed_of(model)):
        for module in model.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset) and not isinstance(module, DRAWING_LAYERS):
                reset()


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The floating parameters, or this rank's shards of them, and buffers."""
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_floating_point():
            yield normalized_name(name), tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def _fill_with_nan(model: nn.Module) -> None:
    for _, tensor in _tensors(model):
        tensor.fill_(math.nan)


@torch.no_grad()
def _refuse_nan(model: nn.Module) -> None:
    lost = [name for name, tensor in _tensors(model) if tensor.isnan().any()]
    if lost:
        raise ModelStateError(
            f"After the meta device, these have no values: {listed(lost)}. The initialisation needs rules for them, "
            "or their modules a method reset_parameters."
        )
