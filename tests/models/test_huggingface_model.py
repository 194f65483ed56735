"""Models of transformers: loaded from a folder, trained, sharded, and what is said when that cannot work."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from modalities_pipeline.distributed.configs import FSDP2MixedPrecisionSettings
from modalities_pipeline.distributed.fsdp import get_fsdp2_wrapped_model
from modalities_pipeline.exceptions import ConfigError, OptimizerError
from modalities_pipeline.models import huggingface_model
from modalities_pipeline.models.huggingface_configs import HuggingFacePretrainedModelConfig
from modalities_pipeline.models.huggingface_model import HuggingFacePretrainedModel, build_huggingface_pretrained_model
from modalities_pipeline.optim.optimizers import get_adam_w

_SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_IDS = torch.arange(10).unsqueeze(0)


@pytest.fixture(scope="module")
def llama_dir(tmp_path_factory) -> Path:
    config = LlamaConfig(**_SIZES, intermediate_size=32, max_position_embeddings=32, tie_word_embeddings=False)
    return _saved(LlamaForCausalLM(config), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def bert_dir(tmp_path_factory) -> Path:
    config = BertConfig(**_SIZES, intermediate_size=32, max_position_embeddings=32)
    return _saved(BertForMaskedLM(config), tmp_path_factory.mktemp("bert"))


def _saved(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def _build(model_name: Path, model_type: str = "AutoModelForCausalLM", **changes: Any) -> HuggingFacePretrainedModel:
    keys = {"prediction_key": "logits", "huggingface_prediction_subscription_key": "logits", "sample_key": "input_ids"}
    fields = {"model_type": model_type, "model_name": model_name, **keys, **changes}
    config = HuggingFacePretrainedModelConfig(**fields)
    return build_huggingface_pretrained_model(**{name: getattr(config, name) for name in type(config).model_fields})


def test_a_causal_model_gives_the_logits_of_its_folder(llama_dir):
    model = _build(llama_dir, prediction_key="predictions")
    expected = LlamaForCausalLM.from_pretrained(llama_dir)(_IDS).logits
    predictions = model({"input_ids": _IDS, "other": _IDS})
    assert list(predictions) == ["predictions"]
    assert torch.equal(predictions["predictions"], expected)
    assert torch.equal(model(_IDS), expected)
    assert (model.vocab_size, model.weight_decay_groups) == (50, {})


def test_a_masked_model_gives_the_logits_of_its_folder(bert_dir):
    model = _build(bert_dir, "AutoModelForMaskedLM").eval()
    expected = BertForMaskedLM.from_pretrained(bert_dir).eval()(_IDS).logits
    assert torch.equal(model({"input_ids": _IDS})["logits"], expected)
    assert model.vocab_size == 50


@pytest.mark.parametrize(
    ("folder", "model_type"), [("llama_dir", "AutoModelForCausalLM"), ("bert_dir", "AutoModelForMaskedLM")]
)
def test_a_step_of_training_lowers_the_loss(folder, model_type, request):
    model = _build(request.getfixturevalue(folder), model_type)
    assert all(module.training for module in model.modules())
    optimizer = get_adam_w(0.01, model, (0.9, 0.95), 1e-8, 0.1, weight_decay_groups_excluded=[])
    losses = []
    for _ in range(2):
        loss = functional.cross_entropy(model.eval()(_IDS).flatten(0, 1), _IDS.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[1] < losses[0]


def test_groups_without_weight_decay_are_refused_as_the_model_has_none(llama_dir):
    with pytest.raises(OptimizerError, match=r"the model has no group layernorm. Its groups: none"):
        get_adam_w(0.01, _build(llama_dir), (0.9, 0.95), 1e-8, 0.1, weight_decay_groups_excluded=["layernorm"])


@pytest.mark.parametrize(
    ("kwargs", "dtype"),
    [(None, torch.float32), ({"dtype": "bfloat16"}, torch.bfloat16), ({"torch_dtype": "bfloat16"}, torch.bfloat16)],
)
def test_weights_are_float32_unless_the_config_says_otherwise(kwargs, dtype, llama_dir, tmp_path):
    """transformers 5 keeps the dtype of the files, and updates of bfloat16 weights are lost in rounding."""
    half = _saved(LlamaForCausalLM.from_pretrained(llama_dir, dtype=torch.bfloat16), tmp_path)
    model = _build(half, kwargs=kwargs)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_weights_that_the_files_lack_are_the_same_on_every_rank(llama_dir, tmp_path):
    """A head that is not in the files is drawn at random; a global seed per rank must not decide it (B058)."""
    config = LlamaConfig.from_pretrained(llama_dir)
    _saved(LlamaForCausalLM(config).model, tmp_path)
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(_build(tmp_path))
    heads = [model.huggingface_model.lm_head.weight for model in models]
    assert torch.equal(*heads)


def test_an_output_that_the_model_does_not_have_is_named_with_those_it_has(llama_dir):
    model = _build(llama_dir, huggingface_prediction_subscription_key="scores")
    with pytest.raises(ConfigError, match=r"the output of the model has no 'scores'. It has: logits"):
        model({"input_ids": _IDS})


def test_arguments_reach_transformers(llama_dir):
    model = _build(llama_dir, kwargs={"attn_implementation": "eager"}, model_args=[])
    assert model.huggingface_model.config._attn_implementation == "eager"
    with pytest.raises(ConfigError, match="no_such_argument"):
        _build(llama_dir, kwargs={"no_such_argument": 1})


@pytest.mark.parametrize("name", ["/no/such/folder", "../missing", "models/tiny/llama"])
def test_a_missing_folder_is_not_looked_for_on_the_hub(name, monkeypatch):
    monkeypatch.setattr(huggingface_model, "hub_is_reachable", lambda: pytest.fail("the hub was asked"))
    with pytest.raises(ConfigError, match="model_name: there is no folder"):
        _build(Path(name))


def test_a_name_of_the_hub_that_does_not_answer_is_looked_for_among_downloads(monkeypatch):
    monkeypatch.setattr(huggingface_model, "hub_is_reachable", lambda: False)
    with pytest.raises(ConfigError, match="of 'no-owner/no-model', and the Hugging Face hub does not"):
        _build(Path("no-owner/no-model"))


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"transformers makes no AutoModelForCausalLM of .*save_pretrained"):
        _build(tmp_path)


def test_a_folder_of_another_kind_of_model_is_refused(llama_dir):
    with pytest.raises(ConfigError, match="transformers makes no AutoModelForMaskedLM of"):
        _build(llama_dir, "AutoModelForMaskedLM")


@pytest.mark.parametrize(
    ("no_split_modules", "expected"),
    [(["B", "A"], ["A", "B"]), ({"B", "A"}, ["A", "B"]), (None, [])],
)
def test_blocks_to_be_sharded_are_those_that_transformers_names(no_split_modules, expected, llama_dir):
    model = _build(llama_dir)
    assert model.fsdp_block_names == ["LlamaDecoderLayer"]
    model.huggingface_model._no_split_modules = no_split_modules
    assert model.fsdp_block_names == expected


@pytest.mark.parametrize(
    ("folder", "model_type", "block_name"),
    [
        ("llama_dir", "AutoModelForCausalLM", "LlamaDecoderLayer"),
        # Not `fsdp_block_names`: one of them has the embedding, which this model shares with its head.
        ("bert_dir", "AutoModelForMaskedLM", "BertLayer"),
    ],
)
def test_a_sharded_model_trains(folder, model_type, block_name, request, process_group):
    expected = _build(request.getfixturevalue(folder), model_type).eval()
    model = _build(request.getfixturevalue(folder), model_type).eval()
    assert block_name in model.fsdp_block_names
    mesh = torch.distributed.init_device_mesh("cpu", (1,), mesh_dim_names=("dp_shard",))
    precision = FSDP2MixedPrecisionSettings(param_dtype="FP_32", reduce_dtype="FP_32")
    sharded = get_fsdp2_wrapped_model(model, [block_name], precision, mesh)
    assert sum(isinstance(module, FSDPModule) for module in sharded.modules()) == 3
    outputs = [each({"input_ids": _IDS})["logits"] for each in (expected, sharded)]
    assert torch.allclose(outputs[1], outputs[0], atol=1e-6)
    outputs[1].sum().backward()
    assert all(parameter.grad is not None for parameter in sharded.parameters())
    assert sharded.vocab_size == 50
