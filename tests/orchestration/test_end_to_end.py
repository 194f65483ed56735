"""Raw text to generated text through the real command, and again, and after an interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from modalities_pipeline.data.manifest import read_manifest
from modalities_pipeline.orchestration.instance import initialize_instance
from modalities_pipeline.orchestration.supervise import living_descendants
from modalities_pipeline.orchestration.training_run import current_run

pytestmark = [pytest.mark.multi_process, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]

SPEC = f"""\
output_dir: outputs
corpora:
  train: {{files: ["data/train_*.jsonl"]}}
  validation: {{files: [data/validation.jsonl], num_chunks: 1}}
tokenizer:
  train: {{corpus: train, vocab_size: 300}}
  eod_token: <eod>
experiments:
  tiny:
    training_config: {REPOSITORY / "configs" / "train_tiny_cpu.yaml"}
    overrides:
      settings.step_profile.sequence_length: 32
      settings.intervals.training_log_interval_in_steps: 2
      settings.intervals.checkpointing_interval_in_steps: 4
      settings.step_profile.local_train_micro_batch_size: 4
      model_raw.config.n_layer: 1
      lr_scheduler.config.warmup_steps: 2
    train_corpus: train
    validation_corpus: validation
    generated_text: {{prompts: ["The cat", "The dog"], max_new_tokens: 5, temperature: 0}}
"""


class Project:
    """A folder with a spec, raw files and a Dagster home; runs the commands that a user types."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs"
        self.home = folder / "dagster_home"
        initialize_instance(self.home)
        (folder / "data").mkdir()
        for name, numbers in (("train_0", range(300)), ("train_1", range(300, 600)), ("validation", range(600, 660))):
            texts = (f"The cat sat on mat {number}. The dog ran to door {number * 7 % 10}." for number in numbers)
            lines = (json.dumps({"text": text}) + "\n" for text in texts)
            (folder / "data" / f"{name}.jsonl").write_text("".join(lines))
        self.write_spec(SPEC)

    def write_spec(self, text: str) -> None:
        (self.folder / "pipeline.yaml").write_text(text)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env={
                **os.environ,
                "DAGSTER_HOME": str(self.home),
                "MODALITIES_PIPELINE_CONFIG": str(self.folder / "pipeline.yaml"),
                "PYTHONPATH": str(REPOSITORY),
            },
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def materialize(self, selection: str = "*") -> tuple[int, str]:
        return self.run(*materialize_command(selection))


def materialize_command(selection: str = "*") -> tuple[str, ...]:
    return ("dagster", "asset", "materialize", "-m", "modalities_pipeline.definitions", "--select", selection)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which everything was materialized once; its tests run in order."""
    project = Project(tmp_path_factory.mktemp("project"))
    code, output = project.materialize()
    assert code == 0, output[-3000:]
    return project


def test_the_one_command_makes_text_from_text(project: Project) -> None:
    samples = json.loads((project.outputs / "tiny" / "generated_text" / "generated_text.json").read_text())
    assert [sample["prompt"] for sample in samples] == ["The cat", "The dog"]
    assert (project.outputs / "tiny" / "hf_model" / "model.safetensors").exists()


def test_the_event_log_tells_of_the_training(project: Project) -> None:
    key = dg.AssetKey(["tiny", "trained_checkpoint"])
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        observations = instance.fetch_observations(key, limit=100).records
        event = instance.get_latest_materialization_event(key)
        checks = {
            name: instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(key, name), limit=1)[0]
            for name in ("loss_is_finite", "better_than_unigram", "up_to_date")
        }
    assert any("train/train loss avg" in record.asset_observation.metadata for record in observations)  # type: ignore[union-attr]
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    assert str(metadata["loss_curve"].value).startswith("![Loss of ")
    assert metadata["num_processes"].value == 2
    assert {name: check.status.value for name, check in checks.items()} == dict.fromkeys(checks, "SUCCEEDED")


def test_the_second_time_everything_is_a_cache_hit(project: Project) -> None:
    code, output = project.materialize()
    assert code == 0, output[-3000:]
    assert "built" not in output
    assert output.count("cache hit(s)") == 12


def test_the_summary_names_losses_text_and_the_way_to_the_ui(project: Project) -> None:
    code, output = project.run("modalities_pipeline", "summary")
    assert code == 0, output
    for words in ("tiny/trained_checkpoint", "loss in nats/token", "unigram model", "The cat", "http://127.0.0.1:3000"):
        assert words in output


def test_a_mistake_in_the_training_config_is_named_and_ends_the_command_with_an_error(project: Project) -> None:
    """B085: CLI reports success on failure."""
    manifest = read_manifest(project.outputs / "tiny" / "hf_model")
    project.write_spec(SPEC.replace("overrides:", "overrides:\n      optimizer.config.lrr: 1"))
    code, output = project.materialize("tiny/trained_checkpoint")
    assert code != 0
    assert "optimizer.config.lrr: unknown key; did you mean 'lr'?" in output
    assert "STEP_UP_FOR_RETRY" not in output
    assert read_manifest(project.outputs / "tiny" / "hf_model") == manifest
    project.write_spec(SPEC)


def test_an_interrupted_training_leaves_no_process_and_goes_on_from_its_checkpoint(
    project: Project, alive: Callable[[list[int]], list[int]], wait_for: Callable[..., None]
) -> None:
    """B079: the run is cancelled while torchrun's workers train."""
    root = project.outputs / "tiny" / "trained_checkpoint"
    before = set(root.iterdir())
    project.write_spec(SPEC.replace("micro_batch_size: 4", "micro_batch_size: 1"))
    process = project.start(*materialize_command("tiny/trained_checkpoint"))
    deadline = time.monotonic() + 120
    while not [path for path in set(root.iterdir()) - before if list(path.glob("checkpoints/*steps_4-*"))]:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0][-3000:]
        time.sleep(0.05)
    tree = list(living_descendants(process.pid))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    wait_for(lambda: not alive(tree), 30, "the processes end")
    [interrupted] = [path for path in set(root.iterdir()) - before if path.is_dir()]
    assert not (interrupted / "result.json").exists()

    code, output = project.materialize("tiny/trained_checkpoint")
    assert code == 0, output[-3000:]
    run = current_run(root)
    assert run is not None
    assert run.folder == interrupted
    steps = [json.loads(line)["num_train_steps_done"] for line in run.metrics_path.read_text().splitlines()]
    assert steps.count(2) == 1  # the second attempt did not start anew
