"""From a config to a Hugging Face folder in one call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from modalities_pipeline import api
from modalities_pipeline.conversion.hf_adapter import HFModelAdapter
from modalities_pipeline.exceptions import CheckpointingError, ConfigError, ConversionError, OutputExistsError
from modalities_pipeline.models.gpt2 import GPT2LLM, build_gpt2

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

IDS = torch.arange(24).view(2, 12)


def _component(component_key: str, variant_key: str, **config: Any) -> dict[str, Any]:
    return {"component_key": component_key, "variant_key": variant_key, "config": config}


def _save(model: GPT2LLM, path: Path) -> Path:
    dcp.save({"app": {"model": model.state_dict(), "optimizer": {"step": 1}}}, checkpoint_id=path, no_dist=True)
    return path


def _name(num_steps: int, experiment_id: str = "run") -> str:
    num_tokens = 10 * num_steps
    return f"eid_{experiment_id}-seen_steps_{num_steps}-seen_tokens_{num_tokens}-target_steps_9-target_tokens_90"


@pytest.fixture
def fields(make_gpt2_config: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Fields of the model."""
    return make_gpt2_config(n_layer=1)


@pytest.fixture
def make_model(fields: dict[str, Any], fill: Callable[[Any], None]) -> Callable[..., GPT2LLM]:
    """Function gain -> a model; the gain makes models differ."""

    def make(gain: float = 1.0) -> GPT2LLM:
        model = build_gpt2(**fields)
        fill(model)
        with torch.no_grad():
            model.get_parameter("transformer.lm_head.weight").mul_(gain)
        return model.eval()

    return make


@pytest.fixture
def write_config(tmp_path: Path, fields: dict[str, Any], tiny_wordlevel_dir: Path) -> Callable[..., Path]:
    """Function sections -> config.yaml in the folder of the run `run`; None leaves a section out."""

    def write(**sections: Any) -> Path:
        execution = _component(
            "checkpoint_saving_execution",
            "dcp",
            checkpoint_path="${settings.paths.checkpoints}",
            global_rank="${settings.rank}",
            experiment_id="${modalities_env:experiment_id}",
        )
        content = {
            "settings": {
                "experiment_id": "${modalities_env:experiment_id}",
                "paths": {"checkpoints": "${modalities_env:experiments_root_path}/${settings.experiment_id}/saved"},
                "rank": 0,
                "unused": "${oc.env:A_VARIABLE_THAT_NOBODY_SETS}",
            },
            "model_raw": _component("model", "gpt2", **fields),
            "checkpoint_saving": _component("checkpoint_saving", "default", checkpoint_saving_execution=execution),
            "tokenizer": _component(
                "tokenizer", "pretrained_hf_tokenizer", pretrained_model_name_or_path=str(tiny_wordlevel_dir)
            ),
            **sections,
        }
        path = tmp_path / "run" / "config.yaml"
        path.parent.mkdir(exist_ok=True)
        content = {name: section for name, section in content.items() if section is not None}
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return write


def _checkpointed_model(checkpoint_path: Path, precision: str | None = None, **model: Any) -> dict[str, Any]:
    return _component(
        "model",
        "fsdp1_checkpointed",
        checkpoint_loading=_component("checkpoint_loading", "torch", device="cpu", precision=precision),
        checkpoint_path=str(checkpoint_path),
        model=model or {"instance_key": "model_raw", "pass_type": "BY_REFERENCE"},
    )


def _logits_agree(adapter: HFModelAdapter, model: GPT2LLM, tolerance: float = 1e-4) -> bool:
    with torch.inference_mode():
        return torch.allclose(adapter(IDS), model(IDS), rtol=0, atol=tolerance)


def test_a_config_that_names_a_checkpoint_becomes_a_model_folder_with_tokenizer(write_config, make_model, tmp_path):
    """See B072: the tutorial's form of a training config with a section appended."""
    model = make_model()
    config = write_config(checkpointed_model=_checkpointed_model(_save(model, tmp_path / "checkpoint")))
    adapter = api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    assert _logits_agree(adapter, model)
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert torch.allclose(reloaded(input_ids=IDS).logits, model(IDS), rtol=0, atol=1e-4)
    assert reloaded.config.eos_token_id == AutoTokenizer.from_pretrained(tmp_path / "hf").eos_token_id == 1
    assert list(tmp_path.glob(".hf*")) == []


@pytest.mark.parametrize(("precision", "expected"), [(None, torch.float32), ("BF16", torch.bfloat16)])
def test_a_file_of_weights_is_converted_in_its_dtype_or_the_one_asked_for(
    precision, expected, write_config, make_model, tmp_path
):
    torch.save(make_model().state_dict(), tmp_path / "model.bin")
    config = write_config(checkpointed_model=_checkpointed_model(tmp_path / "model.bin", precision))
    adapter = api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    assert adapter.model.dtype == expected


@pytest.mark.parametrize("folder", ["saved", "checkpoints", "."])
def test_the_config_in_a_run_s_folder_finds_the_newest_complete_checkpoint(folder, write_config, make_model, tmp_path):
    """See B072: nothing is edited by hand."""
    config = write_config()
    for num_steps in (2, 5, 7):
        _save(make_model(gain=num_steps), config.parent / folder / _name(num_steps))
    (config.parent / folder / _name(7) / ".metadata").unlink()
    adapter = api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    assert _logits_agree(adapter, make_model(gain=5))


def test_checkpoints_of_other_experiments_in_a_common_folder_are_passed_over(write_config, make_model, tmp_path):
    config = write_config(settings={"paths": {"checkpoints": str(tmp_path / "common")}, "rank": 0})
    _save(make_model(gain=2), tmp_path / "common" / _name(2))
    _save(make_model(gain=5), tmp_path / "common" / _name(5, "other"))
    adapter = api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    assert _logits_agree(adapter, make_model(gain=2))


@pytest.mark.parametrize("sections", [{}, {"checkpoint_saving": None}])
def test_a_config_without_a_checkpoint_is_told_how_to_name_one(sections, write_config, tmp_path):
    config = write_config(**sections)
    with pytest.raises(ConfigError, match=r"no complete checkpoint of it in .*or add a section checkpointed_model"):
        api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")


def test_a_run_whose_checkpoints_are_files_of_fsdp1_is_told_what_config_they_need(write_config, make_model, tmp_path):
    config = write_config()
    folder = config.parent / "saved"
    folder.mkdir()
    for entity in ("model", "optimizer"):
        torch.save(make_model().state_dict(), folder / f"{_name(5, f'run-{entity}')}.bin")
    with pytest.raises(ConfigError, match=r"files of FSDP1.*model/fsdp1_checkpointed whose") as caught:
        api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    newest = folder / f"{_name(5, 'run-model')}.bin"
    assert str(newest) in str(caught.value)
    named = write_config(checkpointed_model=_checkpointed_model(newest))
    assert api.convert_pytorch_to_hf_checkpoint(named, tmp_path / "hf", "logits")


def test_the_adapter_calls_and_generates_like_the_model(write_config, make_model, tmp_path):
    model = make_model()
    config = write_config(checkpointed_model=_checkpointed_model(_save(model, tmp_path / "checkpoint")))
    api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    adapter = HFModelAdapter.from_pretrained(tmp_path / "hf", prediction_key="logits")
    outputs = adapter(IDS, return_dict=True, output_hidden_states=True)
    assert torch.equal(outputs.logits, adapter(input_ids=IDS))
    assert len(outputs.hidden_states) == adapter.config.num_hidden_layers + 1
    generated = adapter.generate(IDS[:1, :4], max_new_tokens=3, do_sample=False)
    assert torch.equal(generated[:, :4], IDS[:1, :4])
    with torch.inference_mode():
        logits = model(IDS[:1, :4])[0, -1, :20]  # beyond are ids of no token, which are not generated
    assert int(generated[0, 4]) == int(logits.argmax())
    adapter.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "hf" / "model.safetensors"
    ).read_bytes()


def test_the_eod_token_of_the_config_is_the_end_token(write_config, make_model, tmp_path):
    """See B071."""
    config = write_config(
        settings={"eod_token": "cat"}, checkpointed_model=_checkpointed_model(_save(make_model(), tmp_path / "saved"))
    )
    adapter = api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    assert adapter.config.eos_token_id == adapter.model.generation_config.eos_token_id == 8


def test_without_a_tokenizer_the_folder_has_the_model_alone(write_config, make_model, tmp_path, caplog):
    checkpoint = _save(make_model(), tmp_path / "checkpoint")
    config = write_config(tokenizer=None, checkpointed_model=_checkpointed_model(checkpoint))
    adapter = api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    assert "has no tokenizer" in caplog.text
    assert adapter.config.eos_token_id is None
    assert not list((tmp_path / "hf").glob("tokenizer*"))
    assert "AutoTokenizer" not in (tmp_path / "hf" / "README.md").read_text()


def test_a_sentencepiece_model_is_copied_and_its_end_token_known(
    write_config, make_model, make_gpt2_config, tmp_path, tiny_sp_file
):
    model = build_gpt2(**make_gpt2_config(n_layer=1, vocab_size=384))
    config = write_config(
        tokenizer=_component("tokenizer", "pretrained_sp_tokenizer", tokenizer_model_file=str(tiny_sp_file)),
        checkpointed_model=_checkpointed_model(
            _save(model, tmp_path / "checkpoint"),
            **_component("model", "gpt2", **make_gpt2_config(n_layer=1, vocab_size=384)),
        ),
    )
    adapter = api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    assert (tmp_path / "hf" / "tokenizer.model").read_bytes() == tiny_sp_file.read_bytes()
    assert adapter.config.eos_token_id == 2
    assert adapter.model.generation_config.suppress_tokens == list(range(300, 384))


def test_several_tokenizers_are_refused_unless_one_has_the_name(write_config, make_model, tmp_path, tiny_wordlevel_dir):
    node = _component("tokenizer", "pretrained_hf_tokenizer", pretrained_model_name_or_path=str(tiny_wordlevel_dir))
    section = _checkpointed_model(_save(make_model(), tmp_path / "checkpoint"))
    config = write_config(tokenizer=None, one=node, two=node, checkpointed_model=section)
    with pytest.raises(ConfigError, match=r"several tokenizers \(one, two\)"):
        api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits")
    config = write_config(one=node, checkpointed_model=section)
    assert api.convert_pytorch_to_hf_checkpoint(config, tmp_path / "hf", "logits").config.eos_token_id == 1


def test_what_cannot_be_converted_is_refused_and_nothing_appears(write_config, make_model, tmp_path, fields):
    """B065 for wrong logits is in test_hf_model; here: options, the name of the logits, another kind of model."""
    output = tmp_path / "hf"
    gelu = {**fields, "activation_type": "gelu"}
    checkpoint = _save(build_gpt2(**gelu), tmp_path / "gelu")
    section = _checkpointed_model(checkpoint, **_component("model", "gpt2", **gelu))
    with pytest.raises(ConversionError, match="activation_type is gelu, it must be swiglu"):
        api.convert_pytorch_to_hf_checkpoint(write_config(checkpointed_model=section), output, "logits")
    section = _checkpointed_model(_save(make_model(), tmp_path / "checkpoint"))
    with pytest.raises(ConversionError, match="prediction_key is 'scores', but the model calls its logits 'logits'"):
        api.convert_pytorch_to_hf_checkpoint(write_config(checkpointed_model=section), output, "scores")
    norm = _component("layer_norm", "layer_norm", normalized_shape=128)
    with pytest.raises(ConversionError, match="checkpointed_model is a LayerNorm; only models gpt2 can be converted"):
        api.convert_pytorch_to_hf_checkpoint(write_config(checkpointed_model=norm), output, "logits")
    assert not output.exists()


def test_a_checkpoint_of_another_model_is_refused(write_config, make_gpt2_config, tmp_path):
    """See B064."""
    checkpoint = _save(build_gpt2(**make_gpt2_config(n_layer=2)), tmp_path / "checkpoint")
    with pytest.raises(CheckpointingError, match=r"the model lacks transformer\.h\.1"):
        api.convert_pytorch_to_hf_checkpoint(
            write_config(checkpointed_model=_checkpointed_model(checkpoint)), tmp_path / "hf", "logits"
        )


def test_a_folder_that_has_something_in_it_is_left_alone(write_config, make_model, tmp_path):
    config = write_config(checkpointed_model=_checkpointed_model(_save(make_model(), tmp_path / "checkpoint")))
    output = tmp_path / "hf"
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError):
        api.convert_pytorch_to_hf_checkpoint(config, output, "logits")
    assert [path.name for path in output.iterdir()] == ["notes.txt"]
    (output / "notes.txt").unlink()
    assert api.convert_pytorch_to_hf_checkpoint(config, output, "logits").prediction_key == "logits"
