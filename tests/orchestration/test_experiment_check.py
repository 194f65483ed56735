"""A training that cannot work fails in its asset, with the whole list of faults, before a process is started."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.config.checking.faults import ConfigFaultsError
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, record
from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.inference.settings import GenerationSettings
from modalities_pipeline.orchestration.experiment_check import check_experiment
from modalities_pipeline.orchestration.spec import ExperimentSpec, LauncherSpec, load_pipeline_spec

REPOSITORY = Path(__file__).parents[2]
CONFIG = REPOSITORY / "configs" / "train_tiny_cpu.yaml"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A packed file that suffices."""
    path = tmp_path / "data.pbin"
    with PackedFileWriter(path, 2) as writer:
        writer.write_document([1, 2, 3] * 40_000)
    record(StageIdentity("merged_pbin", "1", {}, {}), path, BuildResult(details={"num_token_ids": 300}), 0.0)
    return path


def experiment(**overrides: Any) -> ExperimentSpec:
    return ExperimentSpec(
        training_config=CONFIG,
        overrides={key.replace("__", "."): value for key, value in overrides.items()},
        train_corpus="train",
        validation_corpus="validation",
        launcher=LauncherSpec(num_processes=2),
        generated_text=GenerationSettings(prompts=["The "]),
    )


def test_the_shipped_experiment_has_no_fault(data):
    check_experiment(experiment(), data, data)


def test_all_faults_are_found_and_stand_where_they_are_said(data, tmp_path):
    spec = tmp_path / "pipeline.yaml"
    spec.write_text(
        (REPOSITORY / "configs" / "pipeline.yaml")
        .read_text()
        .replace("training_config: train_tiny_cpu.yaml", f"training_config: {CONFIG}")
        .replace(
            "overrides: {}",
            "overrides:\n"
            "      optimizer.config.lrr: 0.1\n"
            "      settings.training_target.num_target_steps: 10\n"
            "      model_raw.config.vocab_size: 256\n"
            "      loss_fn.config.prediction_key: logit",
        )
    )
    [given] = load_pipeline_spec(spec).experiments.values()
    with pytest.raises(ConfigFaultsError) as caught:
        check_experiment(given, data, data)
    faults = {".".join(map(str, fault.key_path)): str(fault.origin) for fault in caught.value.faults}
    line = next(
        number for number, text in enumerate(spec.read_text().splitlines(), 1) if "optimizer.config.lrr" in text
    )
    assert faults["optimizer.config.lrr"] == f"{spec}:{line}:7"
    assert faults["loss_fn.config.prediction_key"] == f"{spec}:{line + 3}:7"
    assert faults["model_raw.config.vocab_size"] == f"{spec}:{line + 2}:7"
    assert any("tokens are left for 10 steps" in fault.message for fault in caught.value.faults)


def test_the_launchers_processes_are_those_that_are_checked_for(data):
    given = experiment(settings__step_profile__dp_degree=4)
    with pytest.raises(ConfigFaultsError, match=r"is 4, but has to be 2: that is the device_mesh's"):
        check_experiment(given, data, data)


def test_a_plugin_of_the_spec_is_known_to_the_training(data, tmp_path):
    (tmp_path / "losses.py").write_text("class MyLoss:\n    def __init__(self, tag: str, weight: float = 1.0): ...\n")
    spec = tmp_path / "pipeline.yaml"
    plugin = "{component_key: loss, variant_key: my_loss, component_path: 'losses.py:MyLoss'}"
    loss = "{component_key: loss, variant_key: my_loss, config: {tag: x, wieght: 2.0}}"
    spec.write_text(
        (REPOSITORY / "configs" / "pipeline.yaml")
        .read_text()
        .replace("training_config: train_tiny_cpu.yaml", f"training_config: {CONFIG}")
        .replace("overrides: {}", f"overrides: {{loss_fn: {loss}}}")
        + f"plugins: [{plugin}]\n"
    )
    [given] = load_pipeline_spec(spec).experiments.values()
    with pytest.raises(ConfigFaultsError) as caught:
        check_experiment(given, data, data)
    [fault] = caught.value.faults
    assert fault.message == "unknown key; did you mean 'weight'?"


def test_the_check_imports_no_torch():
    code = "import sys; import modalities_pipeline.orchestration.experiment_check; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
