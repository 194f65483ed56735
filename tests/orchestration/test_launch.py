"""A training command reports while it runs, says why it failed, and ends with whatever started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from modalities_pipeline.orchestration.launch import TrainingProcessError, train, training_command
from modalities_pipeline.orchestration.metrics_file import read_metrics
from modalities_pipeline.orchestration.spec import LauncherSpec
from modalities_pipeline.orchestration.supervise import living_descendants
from modalities_pipeline.orchestration.training_run import TrainingRun

pytestmark = pytest.mark.multi_process

LAUNCHER = LauncherSpec(grace_in_s=1)


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    folder = tmp_path / "run"
    folder.mkdir()
    return TrainingRun(folder)


@pytest.fixture
def command(fake_launcher: list[str], run: TrainingRun) -> Callable[..., list[str]]:
    def build(seconds: float, code: int = 0, *flags: str) -> list[str]:
        return [*fake_launcher, str(run.metrics_path), str(seconds), str(code), *flags]

    return build


def test_metrics_arrive_while_the_command_runs(run: TrainingRun, command: Callable[..., list[str]]) -> None:
    """B090: logs only after the end."""
    started = time.monotonic()
    arrivals = [(time.monotonic() - started, line) for line in train(run, LAUNCHER, command(3))]
    assert arrivals[0][0] < arrivals[-1][0] - 1
    steps = [line["num_train_steps_done"] for _, line in arrivals]
    assert steps == list(range(1, len(steps) + 1))
    assert [line["num_train_steps_done"] for line in read_metrics(run.metrics_path)] == steps


def test_only_what_is_new_in_the_metrics_file_is_reported(run: TrainingRun, command: Callable[..., list[str]]) -> None:
    list(train(run, LAUNCHER, command(0.3)))
    num_lines_before = len(run.metrics_path.read_text().splitlines())
    reported = len(list(train(run, LAUNCHER, command(0.3))))
    assert reported == len(run.metrics_path.read_text().splitlines()) - num_lines_before


def test_a_failure_shows_the_end_of_the_log_and_may_be_retried(
    run: TrainingRun, command: Callable[..., list[str]]
) -> None:
    with pytest.raises(TrainingProcessError, match=r"exit code 7[\s\S]*train\.log[\s\S]*the launcher runs") as caught:
        list(train(run, LAUNCHER, command(0.1, 7)))
    assert not caught.value.is_user_error


def test_a_users_error_is_shown_alone_and_is_not_retried(run: TrainingRun) -> None:
    printed = "noise\nError: x.yaml:3: optimizer: no such key\nx.yaml:4: model: missing\nW1130 18:11:18 torchrun\n"
    code = f"print({printed!r} * 2); raise SystemExit(1)"
    with pytest.raises(TrainingProcessError) as caught:
        list(train(run, LAUNCHER, [sys.executable, "-c", code]))
    assert caught.value.is_user_error
    assert str(caught.value).splitlines() == [
        "Training failed:",
        "x.yaml:3: optimizer: no such key",
        "x.yaml:4: model: missing",
        f"The whole log: {run.log_path}",
    ]


def test_a_step_that_is_not_finite_is_not_retried(run: TrainingRun) -> None:
    """The command line reports a `TrainingError` as it does a user's error; the same data would end the same way."""
    code = (
        "import modalities_pipeline.__main__ as cli; from modalities_pipeline.exceptions import TrainingError as E\n"
        "from modalities_pipeline.orchestration import summary\n"
        "def fail(since): raise E('Step 3 is not finite')\n"
        "summary.main = fail; raise SystemExit(cli.main(['summary']))"
    )
    with pytest.raises(TrainingProcessError, match="Step 3 is not finite") as caught:
        list(train(run, LAUNCHER, [sys.executable, "-c", code]))
    assert caught.value.is_user_error


def test_a_megabyte_on_stderr_does_not_block_the_command(run: TrainingRun) -> None:
    """B082: the child's output fills the pipe and all stops."""
    code = "import sys; sys.stderr.write('x' * 1_000_000)"
    assert list(train(run, LAUNCHER, [sys.executable, "-c", code])) == []
    assert run.log_path.stat().st_size == 1_000_000


def test_leaving_the_loop_ends_the_command(
    run: TrainingRun, command: Callable[..., list[str]], alive: Callable[[list[int]], list[int]]
) -> None:
    others = set(living_descendants(os.getpid()))  # of tests before: multiprocessing keeps a process for its resources
    lines = train(run, LAUNCHER, command(60, 0, "--stubborn"))
    next(lines)
    tree = [process for process in living_descendants(os.getpid()) if process not in others]
    assert len(tree) >= 4  # supervisor, launcher, two workers
    lines.close()
    assert not alive(tree)


def test_a_run_over_its_time_limit_says_so(run: TrainingRun, command: Callable[..., list[str]]) -> None:
    with pytest.raises(TrainingProcessError, match=r"longer than 0\.5 s"):
        list(train(run, LauncherSpec(grace_in_s=0.5, timeout_in_s=0.5), command(60)))


def test_torchrun_chooses_its_own_port_and_resumes(run: TrainingRun) -> None:
    """B084: port taken. A standalone rendezvous binds port 0."""
    words = training_command(run, LauncherSpec(num_processes=3))
    assert "--standalone" in words
    assert words[words.index("--nproc-per-node") + 1] == "3"
    assert "--resume" in words


@pytest.fixture
def dagster_run(dagster_environment: dict[str, str], run: TrainingRun, tmp_path: Path) -> "subprocess.Popen[bytes]":
    """The real command, materializing an asset whose training takes minutes and ignores SIGTERM."""
    return subprocess.Popen(
        [sys.executable, "-m", "dagster", "asset", "materialize", "-m", "fake_training_definitions", "--select", "*"],
        env={**dagster_environment, "FAKE_RUN_FOLDER": str(run.folder)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("victim", "number"),
    [("command", signal.SIGINT), ("command", signal.SIGTERM), ("command", signal.SIGKILL), ("step", signal.SIGKILL)],
)
def test_no_process_survives_the_end_of_its_dagster_run(
    dagster_run: "subprocess.Popen[bytes]",
    run: TrainingRun,
    wait_for: Callable[..., None],
    alive: Callable[[list[int]], list[int]],
    victim: str,
    number: signal.Signals,
) -> None:
    """B079, B080: cancelled run leaves the child process running."""
    try:
        wait_for(lambda: len(read_metrics(run.metrics_path)) > 5, 60, "training runs")
        tree = list(living_descendants(dagster_run.pid))
        os.kill(dagster_run.pid if victim == "command" else int((run.folder / "step.pid").read_text()), number)
        wait_for(lambda: not alive(tree), 30, f"the processes {alive(tree)} end")
        assert dagster_run.wait(30) != 0
    finally:
        dagster_run.kill()


def test_observations_are_in_the_event_log_while_training_runs(
    dagster_run: "subprocess.Popen[bytes]", run: TrainingRun, dagster_home: Path, wait_for: Callable[..., None]
) -> None:
    """B090: logs only after the end."""
    try:
        wait_for(lambda: len(read_metrics(run.metrics_path)) > 5, 60, "training runs")
        with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
            key = dg.AssetKey("fake_training")
            wait_for(lambda: instance.fetch_observations(key, limit=1).records, 20, "an observation")
            metadata = instance.fetch_observations(key, limit=1).records[0].asset_observation.metadata  # type: ignore[union-attr]
        assert metadata["train/train loss avg"].value < 5
    finally:
        dagster_run.send_signal(signal.SIGINT)
        assert dagster_run.wait(40) != 0
