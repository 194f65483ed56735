"""The configs of docs/training.md are right, and give the losses of the training that they change."""

import re
import shutil
from pathlib import Path

import pytest
from whole_runs import train

from modalities_pipeline.config.check import check_config
from modalities_pipeline.config.overlays import parse_override
from modalities_pipeline.data.pbin import PackedFileWriter
from modalities_pipeline.reporting.to_disc import read_results

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "training.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
SHORT = {
    "model_raw.config.vocab_size": 1024,
    "lr_scheduler.config.warmup_steps": 2,
    "settings.training_target.num_target_steps": 4,
    "settings.step_profile.local_train_micro_batch_size": 2,
    "settings.intervals.training_log_interval_in_steps": 1,
}


def _settings(num_ranks: int) -> list[str]:
    """Short trainings that see the same samples in each step, whether on one or on two ranks."""
    per_step = {"settings.step_profile.gradient_accumulation_steps": 2 // num_ranks}
    tokens = {"settings.training_target.num_target_tokens": 4 * 2 * 2 * 256}
    return [f"{name}={value}" for name, value in {**SHORT, **per_step, **tokens}.items()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the example configs, those of the page, and data for them."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for name in ("train", "validation"):
        path = tmp_path / "outputs" / name / "merged_pbin" / "merged.pbin"
        path.parent.mkdir(parents=True)
        with PackedFileWriter(path, 2) as writer:
            writer.write_document([(7 * position * position + 3 * position) % 1000 for position in range(5_000)])
    for number, example in enumerate(EXAMPLES):
        (tmp_path / f"{number}.yaml").write_text(example, "utf-8")
    return tmp_path


def _number_of(part: str) -> int:
    [number] = [number for number, example in enumerate(EXAMPLES) if part in example]
    return number


def _losses(config: str, num_processes: int, num_ranks: int) -> list[float]:
    """Of each step; `num_ranks` see different samples."""
    options = [word for setting in _settings(num_ranks) for word in ("--set", setting)]
    root = Path("experiments") / Path(config).stem
    completed = train(Path(config), root, num_processes, *options)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    results = read_results(root / "x" / "metrics.jsonl")
    return [line["losses"]["train loss avg"] for line in results if line["dataloader_tag"] == "train"]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_is_right(number: int, folder: Path) -> None:
    is_tensor_parallel = "gpt2_tp" in EXAMPLES[number]
    overrides = [parse_override(setting) for setting in _settings(1 if is_tensor_parallel else 2)]
    report = check_config(folder / f"{number}.yaml", world_size=2, overrides=overrides)
    assert report.is_ok, report.text()
    assert report.kind == "training"


@pytest.mark.multi_process
def test_less_memory_and_tensor_parallelism_and_insight_leave_the_losses_as_they_are(folder: Path) -> None:
    expected = _losses("configs/train_tiny_cpu.yaml", 1, 1)
    assert len(expected) == 4
    for part, num_ranks in (("fused_loss", 2), ("gpt2_tp", 1), ("nan_hook", 2)):
        losses = _losses(f"{_number_of(part)}.yaml", 2, num_ranks)
        assert losses == pytest.approx(expected, abs=2e-6), part
    assert list(Path("experiments").glob("*/profile/profiler_trace_*.json"))
    assert list(Path("experiments").glob("*/wandb/offline-run-*"))
