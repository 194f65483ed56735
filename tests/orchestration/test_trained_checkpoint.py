"""Which training run answers for an experiment, under each policy; the training itself is faked."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import torch

from modalities_pipeline.batch import EvaluationResultBatch, ResultItem
from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, StageIdentity
from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.data.production import produce
from modalities_pipeline.inference.settings import GenerationSettings
from modalities_pipeline.orchestration.assets import trained_checkpoint as asset_module
from modalities_pipeline.orchestration.materialize import PolicyResource
from modalities_pipeline.orchestration.spec import CorpusSpec, ExperimentSpec, LauncherSpec, PipelineSpec, TokenizerSpec
from modalities_pipeline.orchestration.summary import summary_lines
from modalities_pipeline.orchestration.training_run import TrainingRun, current_run
from modalities_pipeline.reporting.broker import Message, MessageTypes
from modalities_pipeline.reporting.to_disc import ToDiscResultSubscriber, read_results

REPOSITORY = Path(__file__).parents[2]

# what a training leaves behind is put into the run's folder by another process, as the real one does
FAKE_TRAINING = "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2], dirs_exist_ok=True)"


def finished_run(folder: Path, run: TrainingRun, loss: float) -> Path:
    """A folder with what training in `run` leaves behind; metrics are written by the program's own writer."""
    prepared = Path(tempfile.mkdtemp(dir=folder))
    checkpoint = prepared / "checkpoints" / "final"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights").write_text(run.folder.name)
    writer = ToDiscResultSubscriber(prepared / "metrics.jsonl")
    item = ResultItem(torch.tensor(loss))
    for batch in (
        EvaluationResultBatch("train", 1, {"train loss avg": item}, throughput_metrics={"lr mean": item}),
        EvaluationResultBatch("val", 1, {"loss": item}),
    ):
        writer.consume_message(Message(MessageTypes.EVALUATION_RESULT, batch))
    train, validation = read_results(prepared / "metrics.jsonl")
    result = {
        "checkpoint_folder_path": str(run.folder / "checkpoints" / "final"),
        "num_steps": 1,
        "num_tokens": 8,
        "num_parameters": 1,
        "train_loss": train["losses"]["train loss avg"],
        "evaluation_losses": {"val": validation["losses"]["loss"]},
        "duration_in_s": 1.0,
        "world_size": 1,
        "device": "cpu",
    }
    (prepared / "result.json").write_text(json.dumps(result, allow_nan=False))
    return prepared


class Experiment:
    """One experiment on packed files that are there already; `lr` and `loss` can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lr = 0.1
        self.loss = 0.5
        self.instance = dg.DagsterInstance.ephemeral()
        self.root = self.spec().layout.trained_checkpoint("tiny")
        for corpus in ("train", "validation"):
            self.pack(corpus)

    def pack(self, corpus: str, **details: Any) -> None:
        def build(path: Path) -> BuildResult:
            with PackedFileWriter(path, 1) as writer:
                writer.write_document([1, 2, 3, 1, 2, 0] * 6000)  # enough for more steps than the warm-up has
            return BuildResult(details={"num_token_ids": 4, "tokenizer_fingerprint": "one", **details})

        path = self.spec().layout.merged_pbin(corpus)
        identity = StageIdentity("merged_pbin", "1", {}, {"x": corpus})
        produce(path, [], FileExistencePolicy.OVERRIDE, lambda identity=identity: identity, build)

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


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    experiment = Experiment(tmp_path)

    def fake_command(run: TrainingRun, launcher: LauncherSpec) -> list[str]:
        prepared = finished_run(tmp_path, run, experiment.loss)
        return [sys.executable, "-c", FAKE_TRAINING, str(prepared), str(run.folder)]

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
    result = experiment.materialize()
    [event] = result.asset_materializations_for_node("tiny__trained_checkpoint")
    assert "loss_curve" in event.metadata
    checks = checks_of(result)
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
    assert words in failure_of(result)
    assert experiment.current() == first


def test_missing_data_are_named(experiment: Experiment) -> None:
    path = experiment.spec().layout.merged_pbin("validation")
    path.unlink()
    result = experiment.materialize()
    assert not result.success
    assert f"{path} does not exist. Materialize validation/merged_pbin first." in failure_of(result)


def test_damaged_data_are_refused(experiment: Experiment) -> None:
    path = experiment.spec().layout.merged_pbin("train")
    path.write_bytes(path.read_bytes()[:-1])
    result = experiment.materialize()
    assert not result.success
    assert "materialize train/merged_pbin again" in failure_of(result)


def test_another_tokenizer_trains_again_even_if_the_tokens_are_the_same(experiment: Experiment) -> None:
    experiment.materialize()
    first = experiment.current()
    for corpus in ("train", "validation"):
        experiment.pack(corpus, tokenizer_fingerprint="other")
    experiment.materialize()
    assert experiment.runs() == {first, experiment.current()}
    assert experiment.current() != first


def test_a_damaged_result_is_made_again(experiment: Experiment) -> None:
    experiment.materialize()
    [name] = experiment.runs()
    (experiment.root / name / "result.json").write_text('{"checkpoint_folder')
    (experiment.root / "current.json").write_text("")
    assert experiment.materialize().success
    assert experiment.current() == name


def test_a_run_without_checkpoint_says_so(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_checkpoint(run: TrainingRun, launcher: LauncherSpec) -> list[str]:
        prepared = finished_run(experiment.folder, run, 0.5)
        result = json.loads((prepared / "result.json").read_text()) | {"checkpoint_folder_path": None}
        (prepared / "result.json").write_text(json.dumps(result))
        return [sys.executable, "-c", FAKE_TRAINING, str(prepared), str(run.folder)]

    monkeypatch.setattr(asset_module, "training_command", without_checkpoint)
    result = experiment.materialize()
    assert not result.success
    assert "saved no checkpoint" in failure_of(result)


def test_the_summary_shows_a_loss_that_is_not_finite(experiment: Experiment) -> None:
    experiment.loss = float("inf")
    experiment.materialize()
    assert "train nan, val nan (a unigram model has" in "\n".join(summary_lines(experiment.spec()))
