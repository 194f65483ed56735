"""`generate_text`, `convert_pytorch_to_hf_checkpoint` and `profile`: what they pass on to the library."""

from pathlib import Path

import pytest

from modalities_pipeline import api
from modalities_pipeline.__main__ import main
from modalities_pipeline.inference import text_inference
from modalities_pipeline.profiling import run as profiling_run


def test_generate_text_passes_its_config_on(monkeypatch):
    calls = []
    monkeypatch.setattr(text_inference, "generate_text", lambda *given: calls.append(given))
    assert main(["generate_text", "--config_file_path", "a.yaml", "--set", "settings.model_path=b"]) == 0
    [(path, [override])] = calls
    assert (path, override.dotted_key, override.value) == (Path("a.yaml"), "settings.model_path", "b")


def test_a_conversion_passes_its_options_on(monkeypatch):
    calls = []
    monkeypatch.setattr(api, "convert_pytorch_to_hf_checkpoint", lambda *given: calls.append(given))
    words = ["convert_pytorch_to_hf_checkpoint", "--config_file_path", "a.yaml", "--prediction_key", "logits"]
    assert main([*words, "--output_hf_checkpoint_dir", "out"]) == 0
    assert calls == [(Path("a.yaml"), Path("out"), "logits")]


@pytest.mark.parametrize("option", ["--experiment_root_path", "--experiments_root_path"])
def test_profiling_accepts_both_spellings_of_the_root(option, monkeypatch):
    calls = []
    monkeypatch.setattr(profiling_run, "profile_distributed", lambda *given: calls.append(given))
    assert main(["profile", "distributed", "--config_file_path", "a.yaml", option, "root"]) == 0
    assert calls == [(Path("a.yaml"), Path("root"))]


@pytest.mark.parametrize(
    "words",
    [
        ["generate_text"],
        ["convert_pytorch_to_hf_checkpoint", "--output_hf_checkpoint_dir", "out", "--prediction_key", "logits"],
        ["profile", "distributed", "--experiment_root_path", "root"],
    ],
)
def test_a_missing_config_is_a_message_that_names_it(words, capsys, tmp_path, monkeypatch):
    """B085"""
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--config_file_path", "nope.yaml"]) == 1
    error = capsys.readouterr().err
    assert "Error: nope.yaml: no such file" in error
    assert "Traceback" not in error
