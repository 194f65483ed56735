"""A run's folder is named by what decides its weights, and nothing else."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.config.loader import load_app_config_dict, load_yaml
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, record
from modalities_pipeline.exceptions import ConfigError, TrainingError
from modalities_pipeline.inference.settings import GenerationSettings
from modalities_pipeline.orchestration.experiment_config import write_config
from modalities_pipeline.orchestration.spec import ExperimentSpec, LauncherSpec
from modalities_pipeline.orchestration.training_run import (
    TrainingRun,
    current_run,
    find_complete_run,
    run_to_train,
    set_current_run,
    settings_identity,
    training_identity,
)

REPOSITORY = Path(__file__).parents[2]

MakeExperiment = Callable[..., ExperimentSpec]


@pytest.fixture
def experiment() -> MakeExperiment:
    """The shipped experiment with changes."""

    def make(overrides: dict[str, Any] | None = None, **fields: Any) -> ExperimentSpec:
        defaults: dict[str, Any] = {
            "training_config": REPOSITORY / "configs" / "train_tiny_cpu.yaml",
            "train_corpus": "train",
            "validation_corpus": "validation",
            "generated_text": GenerationSettings(prompts=["The "]),
        }
        return ExperimentSpec(overrides=overrides or {}, **{**defaults, **fields})

    return make


def test_the_fingerprint_changes_with_what_changes_weights(experiment: MakeExperiment) -> None:
    fingerprint = training_identity(experiment(), "a", "b").fingerprint
    assert training_identity(experiment(), "a", "b").fingerprint == fingerprint
    assert training_identity(experiment(), "x", "b").fingerprint != fingerprint
    assert training_identity(experiment({"optimizer.config.lr": 1e-5}), "a", "b").fingerprint != fingerprint
    assert training_identity(experiment(launcher=LauncherSpec(num_processes=1)), "a", "b").fingerprint != fingerprint


def evaluation_dataloaders(**changes: Any) -> list[Any]:
    """The shipped ones with changes to the first."""
    [loader] = load_config(REPOSITORY / "configs" / "train_tiny_cpu.yaml").data["eval_dataloaders"]
    return [{**loader, "config": {**loader["config"], **changes}}]


def test_a_change_inside_a_list_is_named(experiment: MakeExperiment) -> None:
    before = training_identity(experiment(), "a", "b").settings
    changed = experiment({"eval_dataloaders": evaluation_dataloaders(dataloader_tag="other")})
    after = training_identity(changed, "a", "b").settings
    different = {key for key in before if before[key] != after[key]}
    assert different == {"eval_dataloaders.0.config.dataloader_tag"}


def test_the_fingerprint_changes_with_the_tokenizer_of_the_data(experiment: MakeExperiment) -> None:
    """A config may take the size of the vocabulary from it."""
    one = training_identity(experiment(), "a", "b", {"num_token_ids": "128"})
    other = training_identity(experiment(), "a", "b", {"num_token_ids": "129"})
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("identity", [settings_identity, lambda experiment: training_identity(experiment, "a", "b")])
@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("settings.paths.train_dataset_path", "x.pbin", r"settings\.paths\.train_dataset_path would have no effect"),
        ("settings.paths.validation_dataset_path", "x.pbin", r"validation_dataset_path would have no effect"),
        ("train_dataset.config.raw_data_path", "x.pbin", r"raw_data_path is x\.pbin, so the training would not see"),
        ("checkpoint_saving.config.checkpoint_saving_strategy.config.k", 0, r"k is 0, so no checkpoint"),
    ],
)
def test_an_override_that_the_pipeline_cannot_heed_is_refused(
    experiment: MakeExperiment, identity: Callable[[ExperimentSpec], Any], key: str, value: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        identity(experiment({key: value}))


def test_the_fingerprint_ignores_what_changes_no_weights(experiment: MakeExperiment, tmp_path: Path) -> None:
    fingerprint = training_identity(experiment(), "a", "b").fingerprint
    copy = tmp_path / "elsewhere.yaml"
    copy.write_text("# moved and commented\n" + (REPOSITORY / "configs" / "train_tiny_cpu.yaml").read_text())
    shutil.copy(REPOSITORY / "configs" / "train_base.yaml", tmp_path)
    shutil.copy(REPOSITORY / "configs" / "train_base.yaml", tmp_path)
    for same in (
        experiment(training_config=copy),
        experiment({"settings.intervals.training_log_interval_in_steps": 1}),
        experiment({"train_dataloader.config.num_workers": 2}),
        experiment({"eval_dataloaders": evaluation_dataloaders(num_workers=2)}),
        experiment(launcher=LauncherSpec(num_threads_per_process=4, grace_in_s=5)),
    ):
        assert training_identity(same, "a", "b").fingerprint == fingerprint


def test_the_fingerprint_ignores_in_which_file_a_value_stands(experiment: MakeExperiment, tmp_path: Path) -> None:
    fingerprint = training_identity(experiment({"optimizer.config.lr": 1e-5}), "a", "b").fingerprint
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(
        f"extends: {REPOSITORY / 'configs' / 'train_tiny_cpu.yaml'}\noptimizer: {{config: {{lr: 1e-5}}}}\n"
    )
    assert training_identity(experiment(training_config=overlay), "a", "b").fingerprint == fingerprint


def test_the_fingerprint_changes_with_the_source_code_of_plugins(experiment: MakeExperiment, tmp_path: Path) -> None:
    overlay, code = tmp_path / "overlay.yaml", tmp_path / "my_models.py"
    overlay.write_text(
        f"extends: {REPOSITORY / 'configs' / 'train_tiny_cpu.yaml'}\n"
        "plugins: [{component_key: model, variant_key: mine, component_path: 'my_models.py:MyModel'}]\n"
    )
    code.write_text("class MyModel: ...")
    before = training_identity(experiment(training_config=overlay), "a", "b").fingerprint
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.copy(overlay, moved)
    shutil.copy(code, moved)
    assert training_identity(experiment(training_config=moved / overlay.name), "a", "b").fingerprint == before
    code.write_text("class MyModel: layers = 2")
    assert training_identity(experiment(training_config=overlay), "a", "b").fingerprint != before


def test_an_override_of_a_key_that_is_not_there_is_refused(experiment: MakeExperiment) -> None:
    with pytest.raises(ConfigError, match=r"optimiser\.config\.lr"):
        training_identity(experiment({"optimiser.config.lr": 1e-5}), "a", "b")


def test_a_training_config_that_ignores_the_pipelines_data_is_refused(
    experiment: MakeExperiment, tmp_path: Path
) -> None:
    config = tmp_path / "other.yaml"
    config.write_text("settings: {paths: {train_dataset_path: x}}\n")
    with pytest.raises(ConfigError, match=r"other\.yaml: settings\.paths\.validation_dataset_path is missing"):
        training_identity(experiment(training_config=config), "a", "b")


def test_the_runs_config_holds_overrides_and_paths_and_keeps_references(
    experiment: MakeExperiment, tmp_path: Path
) -> None:
    run = TrainingRun(tmp_path)
    changes = {"optimizer.config.lr": 1e-5, "model_raw.config.prediction_key": "1e-5"}
    write_config(run.config_path, experiment(changes), tmp_path / "train.pbin", tmp_path / "validation.pbin")
    data = load_yaml(run.config_path).data
    assert data["optimizer"]["config"]["lr"] == 1e-5
    assert data["model_raw"]["config"]["prediction_key"] == "1e-5"  # text stays text
    assert data["train_dataset"]["config"]["raw_data_path"] == "${settings.paths.train_dataset_path}"
    resolved = load_app_config_dict(run.config_path, tmp_path, "id")
    assert resolved["train_dataset"]["config"]["raw_data_path"] == str(tmp_path / "train.pbin")


FINGERPRINT = StageIdentity("trained_checkpoint", "1", {}, {}).fingerprint


def finish(run: TrainingRun, with_manifest: bool = True) -> None:
    """Put into a run's folder what a finished training leaves there."""
    checkpoint = run.folder / "checkpoints" / "final"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights").write_text("w")
    result = {
        "checkpoint_folder_path": str(checkpoint),
        "num_steps": 1,
        "num_tokens": 8,
        "num_parameters": 1,
        "train_loss": 1.0,
        "evaluation_losses": {"val": 1.0},
        "duration_in_s": 1.0,
        "world_size": 1,
        "device": "cpu",
    }
    (run.folder / "result.json").write_text(json.dumps(result))
    if with_manifest:
        record(StageIdentity("trained_checkpoint", "1", {}, {}), checkpoint, BuildResult(), 1.0)


def test_an_interrupted_run_is_continued_in_its_folder(tmp_path: Path) -> None:
    run = run_to_train(tmp_path, FINGERPRINT)
    run.folder.mkdir()
    assert find_complete_run(tmp_path, FINGERPRINT) is None
    assert run_to_train(tmp_path, FINGERPRINT) == run
    finish(run, with_manifest=False)  # killed between the result and the manifest
    assert find_complete_run(tmp_path, FINGERPRINT) is None
    assert run_to_train(tmp_path, FINGERPRINT) == run


def test_a_complete_run_is_never_overwritten(tmp_path: Path) -> None:
    first = run_to_train(tmp_path, FINGERPRINT)
    finish(first)
    assert find_complete_run(tmp_path, FINGERPRINT) == first
    second = run_to_train(tmp_path, FINGERPRINT)
    assert second.folder.name == first.folder.name + "_2"
    finish(second)
    assert find_complete_run(tmp_path, FINGERPRINT) == second


def test_a_damaged_run_is_passed_over_for_an_intact_one(tmp_path: Path) -> None:
    first, second = run_to_train(tmp_path, FINGERPRINT), TrainingRun(tmp_path / f"{FINGERPRINT[7:23]}_2")
    finish(first)
    finish(second)
    (second.checkpoint_folder() / "weights").write_text("damaged")
    assert find_complete_run(tmp_path, FINGERPRINT) == first


def test_the_checkpoint_is_found_after_the_outputs_were_moved(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path / "before" / "run")
    finish(run)
    (tmp_path / "before").rename(tmp_path / "after")
    moved = TrainingRun(tmp_path / "after" / "run")
    assert moved.checkpoint_folder() == moved.folder / "checkpoints" / "final"


def test_a_copy_uses_its_own_checkpoint(tmp_path: Path) -> None:
    original = TrainingRun(tmp_path / "original" / "run")
    finish(original)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copy = TrainingRun(tmp_path / "copy" / "run")
    assert copy.checkpoint_folder() == copy.folder / "checkpoints" / "final"
    shutil.rmtree(copy.folder / "checkpoints")
    with pytest.raises(TrainingError, match="is gone"):
        copy.checkpoint_folder()


def test_a_checkpoint_that_the_config_puts_elsewhere_is_found(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path / "run")
    finish(run)
    elsewhere = tmp_path / "large_disc" / "final"
    elsewhere.parent.mkdir()
    run.checkpoint_folder().rename(elsewhere)
    change_result(run, checkpoint_folder_path=str(elsewhere))
    assert run.checkpoint_folder() == elsewhere


def change_result(run: TrainingRun, **changes: Any) -> None:
    path = run.folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_losses_that_are_null_are_nan(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path / "run")
    finish(run)
    change_result(run, train_loss=None, evaluation_losses={"val": None, "other": 1.0})
    result = run.result()
    assert result is not None
    assert math.isnan(result.train_loss)
    assert math.isnan(result.evaluation_losses["val"])
    assert result.evaluation_losses["other"] == 1.0


@pytest.mark.parametrize("content", ["", '{"num_steps": 1', "[]", '{"num_steps": 1}', "\0"])
def test_a_damaged_record_is_none(tmp_path: Path, content: str) -> None:
    run = TrainingRun(tmp_path / "run")
    finish(run)
    set_current_run(tmp_path, run)
    (run.folder / "result.json").write_text(content)
    (tmp_path / "current.json").write_text(content)
    assert run.result() is None
    assert run.manifest() is None
    assert current_run(tmp_path) is None


def test_a_run_that_saved_no_checkpoint_says_so(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path / "run")
    finish(run)
    change_result(run, checkpoint_folder_path=None)
    with pytest.raises(TrainingError, match="saved no checkpoint"):
        run.checkpoint_folder()


def test_a_checkpoint_that_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    run = TrainingRun(tmp_path / "run")
    with pytest.raises(TrainingError, match="no finished training run"):
        run.checkpoint_folder()
    finish(run)
    run.checkpoint_folder().rename(tmp_path / "gone")
    with pytest.raises(TrainingError, match="final of the finished run"):
        run.checkpoint_folder()


def test_later_stages_use_the_run_that_was_set(tmp_path: Path) -> None:
    assert current_run(tmp_path) is None
    set_current_run(tmp_path, TrainingRun(tmp_path / "a"))
    set_current_run(tmp_path, TrainingRun(tmp_path / "b"))
    assert current_run(tmp_path) == TrainingRun(tmp_path / "b")
