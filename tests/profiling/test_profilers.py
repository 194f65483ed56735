"""Profilers: what they record and when, and what too few steps leave behind."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from modalities_pipeline.config.interfaces import STEPPABLE_PROFILER
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.profiling.configs import SteppableCombinedProfilerConfig, SteppableKernelProfilerConfig
from modalities_pipeline.profiling.kernel_tracing import SteppableKernelProfiler
from modalities_pipeline.profiling.memory_tracing import SteppableMemoryProfiler
from modalities_pipeline.profiling.profilers import (
    SteppableCombinedProfiler,
    SteppableNoProfiler,
    SteppableProfilerIF,
)

TRACE, SUMMARY = "profiler_trace_ranks_1_rank_0.json", "profiler_summary_ranks_1_rank_0.txt"
SNAPSHOT = "memory_snapshot_ranks_1_rank_0.pkl"


@pytest.fixture
def kernel_profiler(tmp_path: Path) -> Callable[..., SteppableKernelProfiler]:
    """Function changes -> a profiler of step 2 and 3 that writes into a new folder."""

    def make(**changes: Any) -> SteppableKernelProfiler:
        arguments = {
            "num_wait_steps": 1,
            "num_warmup_steps": 1,
            "num_active_steps": 2,
            "profiler_activities": ["CPU"],
            "profile_memory": False,
            "record_shapes": False,
            "with_flops": False,
            "with_stack": False,
            "with_modules": False,
            "output_folder_path": tmp_path / "profile",
        }
        return SteppableKernelProfiler(**{**arguments, **changes})

    return make


def _run(profiler: SteppableProfilerIF, num_steps: int) -> None:
    with profiler:
        for step in range(num_steps):
            torch.ones(4) + step
            profiler.step()


def _steps(folder: Path) -> set[str]:
    events = json.loads((folder / TRACE).read_text("utf-8"))["traceEvents"]
    return {event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep#")}


@pytest.mark.parametrize("num_steps", [4, 7])
def test_a_trace_and_a_summary_of_the_active_steps_are_written(num_steps, kernel_profiler, tmp_path):
    profiler = kernel_profiler()
    assert len(profiler) == 4
    _run(profiler, num_steps)
    assert _steps(tmp_path / "profile") == {"ProfilerStep#2", "ProfilerStep#3"}
    assert "aten::add" in (tmp_path / "profile" / SUMMARY).read_text("utf-8")
    assert len(list((tmp_path / "profile").iterdir())) == 2


def test_files_are_there_as_soon_as_the_last_step_is_over(kernel_profiler, tmp_path):
    with kernel_profiler() as profiler:
        for _ in range(4):
            profiler.step()
        assert (tmp_path / "profile" / TRACE).is_file()


@pytest.mark.parametrize("num_steps", [2, 3])
def test_too_few_steps_leave_what_there_is_and_a_warning(num_steps, kernel_profiler, tmp_path, caplog):
    """W30: no error at the end of a good training. Nothing is said of ranks, so all are tracked."""
    _run(kernel_profiler(), num_steps)
    assert f"needs 4 steps, there were only {num_steps}: the rest is missing" in caplog.text
    assert "ProfilerStep#2" in _steps(tmp_path / "profile")


@pytest.mark.parametrize("num_steps", [0, 1])
def test_steps_that_only_warm_up_leave_nothing_and_a_warning(num_steps, kernel_profiler, tmp_path, caplog):
    _run(kernel_profiler(), num_steps)
    assert f"there were only {num_steps}: nothing was recorded" in caplog.text
    assert not (tmp_path / "profile" / SUMMARY).exists()


def test_ranks_that_do_not_exist_are_refused(kernel_profiler):
    assert len(kernel_profiler(tracked_ranks=[0])) == 4
    with pytest.raises(ConfigError, match=r"there is no rank 1, 3, only 1 ranks"):
        kernel_profiler(tracked_ranks=[0, 1, 3])


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_only_the_cpu_can_be_recorded(kernel_profiler, tmp_path, caplog):
    with pytest.raises(ConfigError, match="CUDA alone cannot be recorded"):
        kernel_profiler(profiler_activities=["CUDA"])
    _run(kernel_profiler(profiler_activities=["CPU", "CUDA"]), 4)
    assert "only what runs on the CPU is recorded" in caplog.text
    assert (tmp_path / "profile" / SUMMARY).is_file()
    with pytest.raises(ConfigError, match="records GPU memory, and torch sees no GPU"):
        SteppableMemoryProfiler(tmp_path, 0, 1, 1)


@pytest.fixture
def memory_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of CUDA's allocator, where there is none: "start", "dump", "stop"."""
    calls: list[str] = []

    def record(enabled: str | None = "all", max_entries: int = 0) -> None:
        calls.append("start" if enabled else "stop")

    def dump(path: str) -> None:
        calls.append("dump")
        Path(path).write_bytes(pickle.dumps({"segments": []}))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", record)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", dump)
    return calls


@pytest.mark.parametrize(("wait", "warmup"), [(1, 1), (0, 0)])
def test_memory_is_recorded_in_the_active_steps_only(wait, warmup, memory_calls, tmp_path):
    profiler = SteppableMemoryProfiler(tmp_path, wait, warmup, 2)
    seen = []
    with profiler:
        for _ in range(len(profiler) + 2):
            seen.append(list(memory_calls))
            profiler.step()
    assert memory_calls == ["start", "dump", "stop"]
    idle = wait + warmup
    assert seen[:idle] == [[]] * idle
    assert seen[idle : idle + 2] == [["start"]] * 2
    assert seen[-1] == ["start", "dump", "stop"]
    assert pickle.loads((tmp_path / SNAPSHOT).read_bytes()) == {"segments": []}


def test_too_few_steps_leave_the_snapshot_that_there_is(memory_calls, tmp_path, caplog):
    """W30"""
    _run(SteppableMemoryProfiler(tmp_path, 0, 1, 3), 2)
    assert memory_calls == ["start", "dump", "stop"]
    assert (tmp_path / SNAPSHOT).is_file()
    assert "needs 4 steps, there were only 2: the rest is missing" in caplog.text
    _run(SteppableMemoryProfiler(tmp_path, 1, 1, 3), 1)
    assert len(memory_calls) == 3


class _Logging(SteppableNoProfiler):
    def __init__(self, name: str, num_steps: int, log: list[str]) -> None:
        self._name, self._num_steps, self._log = name, num_steps, log

    def __enter__(self) -> "_Logging":
        self._log.append(f"enter {self._name}")
        return self

    def __exit__(self, *error: object) -> None:
        self._log.append(f"exit {self._name}")

    def step(self) -> None:
        self._log.append(f"step {self._name}")

    def __len__(self) -> int:
        return self._num_steps


def test_combined_profilers_are_entered_stepped_and_left_together(caplog):
    log: list[str] = []
    combined = SteppableCombinedProfiler([_Logging("a", 1, log), _Logging("b", 3, log)])
    assert len(combined) == 3
    assert "need different numbers of steps: 1, 3" in caplog.text
    caplog.clear()
    SteppableCombinedProfiler([_Logging("a", 1, []), SteppableNoProfiler()])
    assert not caplog.text
    _run(combined, 1)
    assert log == ["enter a", "enter b", "step a", "step b", "exit b", "exit a"]


def test_profiles_that_would_be_recorded_at_once_are_refused():
    """torch makes one at a time; a second one ended the process with SIGSEGV."""

    def config(num_wait_steps: int) -> SteppableCombinedProfilerConfig:
        flags = ("profile_memory", "record_shapes", "with_flops", "with_stack", "with_modules")
        kernels = [
            SteppableKernelProfilerConfig(
                **dict.fromkeys(flags, False),
                num_wait_steps=wait,
                num_warmup_steps=1,
                num_active_steps=2,
                profiler_activities=["CPU"],
                output_folder_path=Path("profile"),
            )
            for wait in (0, num_wait_steps)
        ]
        row = "steppable_profiler", "kernel_tracing", STEPPABLE_PROFILER
        return SteppableCombinedProfilerConfig(profilers=[Unbuilt(*row, kernel) for kernel in kernels])

    assert len(config(3).profilers) == 2
    with pytest.raises(ValidationError, match="one until step 3, one from step 3"):
        config(2)


def test_a_summary_that_torch_cannot_make_ends_nothing(kernel_profiler, tmp_path, monkeypatch, caplog):
    """With `with_stack` on a CPU, torch's summary fails at a character that it cut in two."""

    def fail(self: Any) -> None:
        raise UnicodeDecodeError("utf-8", b"a", 0, 1, "unexpected end of data")

    monkeypatch.setattr(torch.profiler.profile, "key_averages", fail)
    _run(kernel_profiler(), 4)
    assert (tmp_path / "profile" / TRACE).exists()
    assert not (tmp_path / "profile" / SUMMARY).exists()
    assert "There is no summary of the profile, only the trace" in caplog.text


def test_combined_profilers_are_used_within_one_context_only():
    combined = SteppableCombinedProfiler([SteppableNoProfiler()])
    with pytest.raises(RuntimeError, match="outside of its context"):
        combined.step()
    with combined, pytest.raises(RuntimeError, match="already entered"):
        combined.__enter__()
    _run(combined, 2)
