"""The hf_model stage: what it publishes is the trained model, and what it cannot convert it refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from modalities_pipeline.conversion import llama
from modalities_pipeline.conversion.hf_model import build_hf_model, identity
from modalities_pipeline.conversion.trained_model import load_trained_model
from modalities_pipeline.data.files import FileExistencePolicy, digest_directory
from modalities_pipeline.data.freshness import explain_change
from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.exceptions import CheckpointingError, ConfigError, ConversionError
from modalities_pipeline.models.gpt2 import GPT2LLM, build_gpt2
from modalities_pipeline.models.initialization import (
    WeightInitTypes,
    get_composed_model_initializer,
    get_initialized_model,
)

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

EOD = "<eod>"
IDENTITY = identity("sha256:checkpoint", {"n_layer": 2}, "sha256:tokenizer", EOD)
NORM = {"norm_type": "layer_norm", "config": {"normalized_shape": 128, "eps": 1e-3}}
QK_NORM = {"norm_type": "pytorch_rms_norm", "config": {"normalized_shape": 32}}


@pytest.fixture
def save_run(tmp_path: Path, make_gpt2_config: Callable[..., dict[str, Any]]) -> Callable[..., GPT2LLM]:
    """Function that writes config.yaml and a checkpoint of a model with large random weights, and returns the model."""

    def save(**changes: Any) -> GPT2LLM:
        config = make_gpt2_config(**changes)
        initializer = get_composed_model_initializer("gpt2", WeightInitTypes.PLAIN, 0.0, 0.2)
        model = get_initialized_model(build_gpt2(**config), initializer)
        node = {"component_key": "model", "variant_key": "gpt2", "config": config}
        settings = {"experiment_id": "${modalities_env:experiment_id}"}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"settings": settings, "model_raw": node}))
        shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
        state = {"app": {"model": model.state_dict(), "optimizer": {"step": 1}}}
        dcp.save(state, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
        return model.eval()

    return save


@pytest.fixture
def convert(tmp_path: Path, tiny_wordlevel_dir: Path) -> Callable[..., Manifest | None]:
    """Function that converts the saved run into `tmp_path / "hf"`."""

    def run(**changes: Any) -> Manifest | None:
        arguments = {
            "config_file_path": tmp_path / "config.yaml",
            "checkpoint_folder_path": tmp_path / "checkpoint",
            "tokenizer_dir": tiny_wordlevel_dir,
            "output_dir": tmp_path / "hf",
            "eod_token": EOD,
            "file_existence_policy": FileExistencePolicy.OVERRIDE,
            "identity": IDENTITY,
        }
        return build_hf_model(**{**arguments, **changes})

    return run


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_weight_tying": True},
        {"bias": True, "n_head_kv": 4},
        {"n_head_kv": 1, "attention_implementation": "manual", "dropout": 0.1},
    ],
)
def test_logits_of_the_published_folder_are_those_of_the_trained_model(changes, save_run, convert, tmp_path):
    """Rotary layout (B065), tied weights (B067, B068): also beyond what the stage itself checks."""
    model = save_run(**changes)
    manifest = convert()
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    ids = torch.randint(128, (3, 32), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        expected, actual = model(ids), reloaded(input_ids=ids).logits
    assert torch.allclose(actual, expected, rtol=0, atol=1e-4)
    assert expected.std() > 0.5
    assert manifest.counts["max_logit_difference"] < 1e-4
    assert manifest.counts["num_parameters"] == reloaded.num_parameters()
    assert manifest.details["architecture"] == "LlamaForCausalLM"
    assert reloaded.config.tie_word_embeddings == model.config.use_weight_tying
    assert explain_change(IDENTITY, tmp_path / "hf") is None


def test_a_tied_head_is_stored_once(save_run, convert, tmp_path):
    """See B068."""
    sizes = {}
    for tied in (False, True):
        save_run(use_weight_tying=tied)
        convert()
        sizes[tied] = (tmp_path / "hf" / "model.safetensors").stat().st_size
    assert sizes[False] - sizes[True] >= 128 * 128 * 4


def test_the_folder_alone_knows_the_end_token_and_the_tokens_that_do_not_exist(
    save_run, convert, tmp_path, tiny_wordlevel_dir
):
    """See B071."""
    save_run()
    manifest = convert()
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    for key in ("eos_token_id", "bos_token_id", "pad_token_id"):
        assert config[key] == generation[key] == getattr(tokenizer, key) == 1
    assert generation["suppress_tokens"] == list(range(20, 128))
    assert manifest.details["num_token_ids"] == 20
    text = "hello world , the cat <eod>"
    assert tokenizer(text)["input_ids"] == AutoTokenizer.from_pretrained(tiny_wordlevel_dir)(text)["input_ids"]


def test_weights_can_be_stored_in_half_the_size(save_run, convert, tmp_path):
    save_run()
    convert()
    full = (tmp_path / "hf" / "model.safetensors").stat().st_size
    convert(dtype="bfloat16")
    assert (tmp_path / "hf" / "model.safetensors").stat().st_size < 0.51 * full
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "hf").dtype == torch.bfloat16


def test_all_files_can_be_read_by_those_who_can_read_the_model_card(save_run, convert, tmp_path):
    save_run()
    convert()
    assert len({path.stat().st_mode for path in (tmp_path / "hf").iterdir()}) == 1


def test_everything_that_llama_cannot_express_is_named(save_run, convert, tmp_path):
    save_run(
        poe_type="ABSOLUTE",
        activation_type="gelu",
        attention_config={"qkv_transforms": [], "qk_norm_config": QK_NORM},
        ffn_norm_config=NORM,
    )
    with pytest.raises(ConversionError) as caught:
        convert()
    for name in ("poe_type", "activation_type", "qkv_transforms", "qk_norm_config", "ffn_norm_config", "the same eps"):
        assert name in str(caught.value)
    assert not (tmp_path / "hf").exists()


def test_a_wrong_conversion_is_noticed_and_leaves_the_old_folder(save_run, convert, tmp_path, monkeypatch):
    """The check is inside the stage (B065)."""
    save_run()
    convert()
    before = digest_directory(tmp_path / "hf")
    real = llama.llama_name
    swap = {"gate_proj": "up_proj", "up_proj": "gate_proj"}

    def swapped(name: str) -> str:
        *path, module, kind = real(name).split(".")
        return ".".join([*path, swap.get(module, module), kind])

    monkeypatch.setattr(llama, "llama_name", swapped)
    with pytest.raises(ConversionError, match="logits of the converted model differ by"):
        convert()
    assert digest_directory(tmp_path / "hf") == before
    assert explain_change(IDENTITY, tmp_path / "hf") is None


def test_a_tokenizer_without_the_end_token_is_refused(save_run, convert):
    save_run()
    with pytest.raises(ConversionError, match=r"no token '<\|endoftext\|>'"):
        convert(eod_token="<|endoftext|>")


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(save_run, convert, tmp_path, tiny_wordlevel_dir):
    save_run()
    shutil.copytree(tiny_wordlevel_dir, tmp_path / "large", copy_function=shutil.copyfile)
    content = json.loads((tmp_path / "large" / "tokenizer.json").read_text("utf-8"))
    content["model"]["vocab"].update({f"word{i}": i for i in range(20, 200)})
    (tmp_path / "large" / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ConversionError, match=r"has 200 token ids, more than the model's vocab_size \(128\)"):
        convert(tokenizer_dir=tmp_path / "large")


def test_an_unknown_dtype_is_refused(save_run, convert):
    save_run()
    with pytest.raises(ConversionError, match="dtype 'int8' is unknown"):
        convert(dtype="int8")


def test_a_checkpoint_that_was_not_finished_is_refused(save_run, convert, tmp_path):
    save_run()
    (tmp_path / "checkpoint" / ".metadata").unlink()
    with pytest.raises(CheckpointingError, match="is not complete"):
        convert()


def test_a_checkpoint_of_another_model_is_refused_with_the_differences(save_run, tmp_path, make_gpt2_config):
    """See B064."""
    save_run(n_layer=3, n_head_kv=4)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    config["model_raw"]["config"] = make_gpt2_config(bias=True)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(CheckpointingError) as caught:
        load_trained_model(tmp_path / "config.yaml", tmp_path / "checkpoint")
    assert "it lacks transformer.h.0.attn.c_proj.bias" in str(caught.value)
    assert "the model lacks transformer.h.2.attention_norm.weight" in str(caught.value)
    assert "h.0.attn.k_attn.weight is (128, 128) there and (64, 128) in the model" in str(caught.value)


def test_a_config_without_a_model_is_refused(save_run, convert, tmp_path):
    save_run()
    (tmp_path / "config.yaml").write_text("settings: {}\n")
    with pytest.raises(ConfigError, match=r"exactly one component model/gpt2; there are 0"):
        convert()


def test_of_a_model_of_hugging_face_it_is_said_how_transformers_saves_it(save_run, convert, tmp_path):
    save_run()
    node = {"component_key": "model", "variant_key": "huggingface_pretrained_model", "config": {}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model_raw": node}))
    with pytest.raises(ConfigError, match=r"only gpt2 can be converted.*huggingface_model\.save_pretrained"):
        convert()


def test_settings_that_change_bytes_change_the_fingerprint():
    others = [
        identity("sha256:other", {"n_layer": 2}, "sha256:tokenizer", EOD),
        identity("sha256:checkpoint", {"n_layer": 3}, "sha256:tokenizer", EOD),
        identity("sha256:checkpoint", {"n_layer": 2}, "sha256:other", EOD),
        identity("sha256:checkpoint", {"n_layer": 2}, "sha256:tokenizer", "<end>"),
        identity("sha256:checkpoint", {"n_layer": 2}, "sha256:tokenizer", EOD, "bfloat16"),
    ]
    assert len({IDENTITY.fingerprint, *(other.fingerprint for other in others)}) == 6


def test_an_existing_folder_is_kept_by_policy_skip(convert, tmp_path):
    (tmp_path / "hf").mkdir()
    assert convert(file_existence_policy=FileExistencePolicy.SKIP) is None
    assert list((tmp_path / "hf").iterdir()) == []
