"""Generating text as a user starts it: a YAML file, a checkpoint, and answers on standard input."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
import yaml

from modalities_pipeline import api
from modalities_pipeline.exceptions import CheckpointingError, ConfigError, UserError
from modalities_pipeline.models.gpt2 import build_gpt2

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

MODEL = {"instance_key": "model", "pass_type": "BY_REFERENCE"}


def _component(component_key: str, variant_key: str, **config: Any) -> dict[str, Any]:
    return {"component_key": component_key, "variant_key": variant_key, "config": config}


@pytest.fixture
def write_config(
    tmp_path: Path, make_gpt2_config: Callable[..., dict[str, Any]], tiny_wordlevel_dir: Path
) -> Callable[..., Path]:
    """Function (name of the checkpoint, changes of the component) -> a config beside a checkpoint of that kind.

    The model says `hello` after everything: its last norm gives ones, and only that row of its head is not 0.
    """
    fields = make_gpt2_config(n_layer=1, sequence_length=8)
    model = build_gpt2(**fields)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer["wte"].weight.fill_(1.0)
        model.transformer["lm_head_norm"].weight.fill_(1.0)
        model.transformer["lm_head"].weight[5].fill_(1.0)
    dcp.save({"app": {"model": model.state_dict()}}, checkpoint_id=tmp_path / "eid_a", no_dist=True)
    torch.save(model.state_dict(), tmp_path / "model.bin")

    def write(checkpoint: str = "eid_a", **changes: Any) -> Path:
        content = {
            "settings": {
                "model_path": str(tmp_path / checkpoint),
                "sequence_length": 8,
                "device": "cpu",
                "referencing_keys": {"sample_key": "input_ids", "prediction_key": "logits"},
            },
            "text_inference_component": _component(
                "inference_component",
                "text",
                **{
                    "device": "${settings.device}",
                    "model": _component(
                        "model",
                        "fsdp1_checkpointed",
                        checkpoint_loading=_component("checkpoint_loading", "torch", device="cpu", precision="BF16"),
                        checkpoint_path="${settings.model_path}",
                        model=_component("model", "gpt2", **fields),
                    ),
                    "tokenizer": _component(
                        "tokenizer", "pretrained_hf_tokenizer", pretrained_model_name_or_path=str(tiny_wordlevel_dir)
                    ),
                    "prompt_template": 'say {what}: {"json": 1}',
                    "sequence_length": "${settings.sequence_length}",
                    "temperature": 0,
                    "max_new_tokens": 2,
                    **changes,
                },
            ),
            "left_over": {"path": "${not_there.at_all}"},
        }
        path = tmp_path / "generate.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Function that puts a text on standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize("checkpoint", ["eid_a", "model.bin"])
def test_text_is_printed_from_either_kind_of_checkpoint(checkpoint, write_config, answer, capsys, tmp_path):
    config = write_config(checkpoint, prompt_template="{what}")
    answer("the cat\n")
    api.generate_text(config)
    output = capsys.readouterr().out
    assert output.startswith("what: ")
    assert "\nthe cat\n" in output
    assert output.endswith("\n hello hello\n<limit of tokens reached>\n")


def test_standard_input_that_ends_is_one_message(write_config, answer):
    answer("")
    with pytest.raises(UserError, match="needs 'what', but standard input has ended"):
        api.generate_text(write_config())


def test_a_model_path_that_does_not_exist_is_found_before_anything_is_built(write_config):
    with pytest.raises(ConfigError, match=r"generate\.yaml:\d+:\d+: settings\.model_path: .*does not exist"):
        api.generate_text(write_config("eid_b"))


def test_a_field_that_there_is_not_is_named_with_its_place(write_config):
    with pytest.raises(ConfigError, match=r"generate\.yaml:\d+:\d+: text_inference_component\.config\.temprature"):
        api.generate_text(write_config(temprature=1.0))


def test_a_checkpoint_that_is_not_complete_is_refused(write_config, tmp_path):
    config = write_config()
    (tmp_path / "eid_a" / ".metadata").unlink()
    with pytest.raises(CheckpointingError, match="is not complete"):
        api.generate_text(config)
