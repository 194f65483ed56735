"""Fixtures of the orchestration tests: processes to watch, a Dagster home, a pipeline small enough for tests."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.orchestration.instance import initialize_instance
from modalities_pipeline.orchestration.supervise import living_descendants

REPOSITORY = Path(__file__).parents[2]
DAGSTER = [sys.executable, "-m", "dagster"]

ProcessIds = list[int]


@pytest.fixture
def fake_launcher() -> list[str]:
    """Command of a program that behaves like torchrun; see its docstring for the arguments."""
    return [sys.executable, str(Path(__file__).parent / "fake_launcher.py")]


@pytest.fixture
def alive() -> Callable[[ProcessIds], ProcessIds]:
    """Which of some processes still run (zombies do not)."""

    def check(process_ids: ProcessIds) -> ProcessIds:
        running = []
        for pid in process_ids:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state != "Z":
                running.append(pid)
        return running

    return check


@pytest.fixture
def wait_for() -> Callable[..., None]:
    """Wait until a condition holds; fails after the time limit."""

    def wait(condition: Callable[[], object], time_limit_in_s: float, what: str) -> None:
        deadline = time.monotonic() + time_limit_in_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {time_limit_in_s} s: {what}"
            time.sleep(0.1)

    return wait


@pytest.fixture
def tree_of(wait_for: Callable[..., None]) -> Callable[[int, int], ProcessIds]:
    """All descendants of a process, once there are so many of them and each has set up its signal handling."""

    def find(process_id: int, size: int) -> ProcessIds:
        wait_for(lambda: len(list(living_descendants(process_id))) >= size, 30, f"{size} descendants of {process_id}")
        time.sleep(0.5)
        return list(living_descendants(process_id))

    return find


@pytest.fixture
def dagster_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An initialised DAGSTER_HOME, set in the environment."""
    home = tmp_path / "dagster_home"
    initialize_instance(home)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    return home


@pytest.fixture
def dagster_environment(dagster_home: Path) -> dict[str, str]:
    """Environment for commands that use `dagster_home`, this checkout's package and the tests' own modules."""
    paths = os.pathsep.join([str(REPOSITORY), str(Path(__file__).parent)])
    return {**os.environ, "DAGSTER_HOME": str(dagster_home), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def run_dagster(
    dagster_environment: dict[str, str], tmp_path: Path
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run the dagster command to its end in an empty folder."""

    def run(*arguments: str, time_limit_in_s: float = 240, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*DAGSTER, *arguments],
            env={**dagster_environment, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=time_limit_in_s,
        )

    return run
