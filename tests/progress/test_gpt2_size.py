"""Parameters counted from the config are those of the model that is built from it."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from modalities_pipeline.models.configs import GPT2LLMConfig
from modalities_pipeline.models.gpt2 import GPT2LLM, build_gpt2
from modalities_pipeline.progress.gpt2_size import gpt2_size

VECTORS = Path(__file__).parents[1] / "models" / "vectors" / "parameter_counts.json"

NORMS: dict[str, dict[str, Any]] = {
    "layer_norm": {"normalized_shape": 128},
    "layer_norm without bias": {"normalized_shape": 128, "bias": False},
    "layer_norm not affine": {"normalized_shape": 128, "elementwise_affine": False},
    "rms_norm": {"ndim": 128},
    "rms_norm without bias": {"ndim": 128, "bias": False},
    "pytorch_rms_norm": {"normalized_shape": 128},
}


def norm(name: str, size: int = 128) -> dict[str, Any]:
    """A norm of another size, as a config says it."""
    config = {key: size if value == 128 and value is not True else value for key, value in NORMS[name].items()}
    return {"norm_type": name.split()[0], "config": config}


def config(norm_name: str = "pytorch_rms_norm", qk_norm: str | None = None, **changes: Any) -> dict[str, Any]:
    """A small model."""
    attention = {"qkv_transforms": [], "qk_norm_config": norm(qk_norm, 32) if qk_norm else None}
    norms = dict.fromkeys(("attention_norm_config", "ffn_norm_config", "lm_head_norm_config"), norm(norm_name))
    return {
        "sample_key": "input_ids",
        "prediction_key": "logits",
        "use_meta_device": True,
        "poe_type": "NOPE",
        "sequence_length": 16,
        "vocab_size": 256,
        "n_layer": 3,
        "n_head_q": 4,
        "n_head_kv": 4,
        "n_embd": 128,
        "ffn_hidden": 640,
        "dropout": 0.0,
        "bias": True,
        "attention_config": attention,
        "attention_implementation": "manual",
        "activation_type": "gelu",
        "use_weight_tying": True,
        **norms,
        **changes,
    }


def count(model: GPT2LLM) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


CASES = [
    *({"norm_name": name} for name in NORMS),
    *({"qk_norm": name} for name in NORMS),
    *(
        {"bias": bias, "use_weight_tying": tying, "activation_type": activation, "poe_type": positions, "n_head_kv": kv}
        for bias, tying, activation, positions, kv in itertools.product(
            (True, False), (True, False), ("gelu", "swiglu"), ("NOPE", "ABSOLUTE"), (4, 2, 1)
        )
    ),
    {"activation_type": "swiglu", "ffn_hidden": 512, "enforce_swiglu_hidden_dim_multiple_of": 128},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parameters_are_those_of_the_model(case):
    model = build_gpt2(**GPT2LLMConfig.model_validate(config(**case)).__dict__)
    size = gpt2_size(model.config)
    assert size is not None
    assert size.num_parameters == count(model)
    assert size.num_block_parameters == sum(p.numel() for p in model.transformer["h"]["0"].parameters())


def test_a_number_that_is_not_known_gives_no_size():
    known = GPT2LLMConfig.model_validate(config())
    unknown = known.model_copy(update={"vocab_size": None})
    assert gpt2_size(known) is not None
    assert gpt2_size(unknown) is None


@pytest.mark.parametrize("implementation", ["manual", "pytorch_flash"])
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_activations_are_about_those_that_a_block_keeps(implementation, activation):
    fields = config(
        bias=False, attention_implementation=implementation, activation_type=activation, use_meta_device=False
    )
    model = build_gpt2(**GPT2LLMConfig.model_validate(fields).__dict__)
    block, kept = model.transformer["h"]["0"], {}
    parameters = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens = 2 * 16
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = block(torch.randn(2, 16, 128, requires_grad=True))
        assert output.requires_grad
        num_kept = sum(storage.nbytes() for storage in kept.values()) / 4 / tokens
    size = gpt2_size(model.config)
    assert size is not None
    assert size.num_kept_per_token_and_block == pytest.approx(num_kept, rel=0.25)


def test_full_size_models_are_counted_as_modalities_counts_them():
    models = json.loads(VECTORS.read_text())["models"]
    for model in models.values():
        size = gpt2_size(GPT2LLMConfig.model_validate(model["config"]))
        assert size is not None
        assert size.num_parameters == model["num_parameters"]
    assert len(models) == 3
