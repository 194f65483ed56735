"""Which training run answers for an experiment, under each policy; the training itself is faked."""

import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, StageIdentity, produce
from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.inference.settings import GenerationSettings
from modalities_pipeline.orchestration.assets import trained_checkpoint as asset_module
from modalities_pipeline.orchestration.materialize import PolicyResource
from modalities_pipeline.orchestration.spec import CorpusSpec, ExperimentSpec, LauncherSpec, PipelineSpec, TokenizerSpec
from modalities_pipeline.orchestration.training_run import TrainingRun, current_run

REPOSITORY = Path(__file__).parents[2]

FAKE_TRAINING = """
import json, pathlib, sys
folder, loss = pathlib.Path(sys.argv[1]), float(sys.argv[2])
checkpoint = folder / "checkpoints" / "final"
checkpoint.mkdir(parents=True)
(checkpoint / "weights").write_text(folder.name)
line = {"dataloader_tag": "train", "num_train_steps_done": 1, "losses": {"train loss avg": loss},
        "metrics": {}, "throughput_metrics": {"lr mean": 0.1}}
(folder / "metrics.jsonl").write_text(json.dumps(line) + chr(10))
(folder / "result.json").write_text(json.dumps({
    "checkpoint_folder_path": str(checkpoint), "num_steps": 1, "num_tokens": 8, "num_parameters": 1,
    "train_loss": loss, "evaluation_losses": {"val": loss}, "duration_in_s": 1.0, "world_size": 1, "device": "cpu"}))
"""


class Experiment:
    """One experiment on packed files that are there already; `lr` and `loss` can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lr = 0.1
        self.loss = 0.5
        self.instance = dg.DagsterInstance.ephemeral()
        self.root = self.spec().layout.trained_checkpoint("tiny")
        for corpus in ("train", "validation"):
            path = self.spec().layout.merged_pbin(corpus)
            produce(StageIdentity("merged_pbin", "1", {}, {"x": corpus}), path, _pack, FileExistencePolicy.ERROR)

    def spec(self) -> PipelineSpec:
        files = CorpusSpec(files=["none.jsonl"])
        return PipelineSpec(
            output_dir=self.folder,
            corpora={"train": files, "validation": files},
            tokenizer=TokenizerSpec(component={}, eod_token="<eod>"),
            experiments={
                "tiny": ExperimentSpec(
                    training_config=REPOSITORY / "configs" / "train_tiny_cpu.yaml",
                    overrides={"optimizer.config.lr": self.lr},
                    train_corpus="train",
                    validation_corpus="validation",
                    launcher=LauncherSpec(num_processes=1, max_retries=0),
                    generated_text=GenerationSettings(prompts=["The "]),
                )
            },
        )

    def materialize(self, policy: str = "auto") -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [asset_module.trained_checkpoint_asset(self.spec(), "tiny")],
            instance=self.instance,
            resources={"policy": PolicyResource(policy=policy)},  # type: ignore[arg-type]
            raise_on_error=False,
        )

    def runs(self) -> set[str]:
        return {path.name for path in self.root.iterdir() if path.is_dir()}

    def current(self) -> str:
        run = current_run(self.root)
        assert run is not None
        return run.folder.name


def _pack(path: Path) -> BuildResult:
    with PackedFileWriter(path, 1) as writer:
        writer.write_document([1, 2, 3, 1, 2, 0])
    return BuildResult(details={"num_token_ids": 4})


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    experiment = Experiment(tmp_path)

    def fake_command(run: TrainingRun, launcher: LauncherSpec) -> list[str]:
        return [sys.executable, "-c", FAKE_TRAINING, str(run.folder), str(experiment.loss)]

    monkeypatch.setattr(asset_module, "training_command", fake_command)
    return experiment


def checks_of(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    failure: Any = result.failure_data_for_node("tiny__trained_checkpoint")
    return str(failure.user_failure_data.description)


def test_a_finished_run_is_a_cache_hit(experiment: Experiment) -> None:
    assert experiment.materialize().success
    result = experiment.materialize()
    [event] = result.asset_materializations_for_node("tiny__trained_checkpoint")
    assert event.metadata["cache_hits"].value == 1
    assert len(experiment.runs()) == 1


def test_a_changed_setting_trains_in_a_new_folder_and_keeps_the_old_run(experiment: Experiment) -> None:
    experiment.materialize()
    first = experiment.current()
    experiment.lr = 0.2
    experiment.materialize()
    assert experiment.runs() == {first, experiment.current()}
    assert experiment.current() != first
    experiment.lr = 0.1
    experiment.materialize()  # changed back: the old run is found again
    assert experiment.current() == first
    assert len(experiment.runs()) == 2


def test_policy_error_names_the_setting_and_trains_nothing(experiment: Experiment) -> None:
    experiment.materialize()
    experiment.lr = 0.2
    result = experiment.materialize("error")
    assert not result.success
    assert "setting optimizer.config.lr: 0.1 -> 0.2" in failure_of(result)
    assert len(experiment.runs()) == 1


def test_policy_skip_keeps_the_old_run_and_says_so(experiment: Experiment) -> None:
    experiment.materialize()
    first = experiment.current()
    experiment.lr = 0.2
    result = experiment.materialize("skip")
    assert result.success
    assert not checks_of(result)["up_to_date"]
    assert experiment.current() == first
    assert len(experiment.runs()) == 1


def test_policy_override_trains_again_beside_the_old_run(experiment: Experiment) -> None:
    experiment.materialize()
    first = experiment.current()
    experiment.materialize("override")
    assert experiment.current() == f"{first}_2"
    assert experiment.runs() == {first, f"{first}_2"}
    experiment.materialize()
    assert experiment.current() == f"{first}_2"


@pytest.mark.parametrize(
    ("loss", "is_finite", "is_better"), [("0.5", True, True), ("9", True, False), ("nan", False, False)]
)
def test_the_loss_is_checked(experiment: Experiment, loss: str, is_finite: bool, is_better: bool) -> None:
    experiment.loss = float(loss)
    checks = checks_of(experiment.materialize())
    assert checks == {"up_to_date": True, "loss_is_finite": is_finite, "better_than_unigram": is_better}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("print('Error: x.yaml:3: lr: must be positive'); raise SystemExit(1)", "x.yaml:3: lr: must be positive"),
        ("pass", "wrote no result"),
    ],
)
def test_a_failed_training_is_explained_and_the_current_run_stays(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    experiment.materialize()
    first = experiment.current()
    experiment.lr = 0.2
    monkeypatch.setattr(asset_module, "training_command", lambda run, launcher: [sys.executable, "-c", code])
    result = experiment.materialize()
    assert not result.success
    failure: Any = result.failure_data_for_node("tiny__trained_checkpoint")
    assert words in (failure.user_failure_data.description if failure.user_failure_data else failure.error.to_string())
    assert experiment.current() == first


def test_missing_data_are_named(experiment: Experiment) -> None:
    path = experiment.spec().layout.merged_pbin("validation")
    path.unlink()
    result = experiment.materialize()
    assert not result.success
    assert f"{path} does not exist. Materialize validation/merged_pbin first." in failure_of(result)
