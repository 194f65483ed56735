"""Nothing of a supervised command outlives the supervisor, and the supervisor does not outlive its parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modalities_pipeline.orchestration.supervise import living_descendants

pytestmark = pytest.mark.multi_process

Supervised = subprocess.Popen[bytes]
Supervise = Callable[..., Supervised]
TreeOf = Callable[[int, int], list[int]]
Alive = Callable[[list[int]], list[int]]


@pytest.fixture
def supervise(fake_launcher: list[str], tmp_path: Path) -> Iterator[Supervise]:
    started: list[Supervised] = []

    def start(*flags: str, seconds: float = 60, code: int = 0, options: tuple[str, ...] = ()) -> Supervised:
        command = [*fake_launcher, str(tmp_path / "metrics"), str(seconds), str(code), *flags]
        supervisor = [sys.executable, "-m", "modalities_pipeline.orchestration.supervise", "--parent", str(os.getpid())]
        process = subprocess.Popen([*supervisor, *options, "--", *command], start_new_session=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_commands(supervise: Supervise, code: int) -> None:
    assert supervise(seconds=0.3, code=code).wait(20) == code


def test_a_command_killed_by_a_signal_gives_128_plus_its_number(supervise: Supervise, tree_of: TreeOf) -> None:
    process = supervise()
    os.kill(tree_of(process.pid, 3)[0], signal.SIGKILL)
    assert process.wait(20) == 128 + signal.SIGKILL


def test_workers_left_behind_by_the_command_are_killed(supervise: Supervise, tree_of: TreeOf, alive: Alive) -> None:
    process = supervise("--leave-workers", seconds=2)
    tree = tree_of(process.pid, 3)
    assert process.wait(20) == 0
    assert not alive(tree)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_whole_tree(
    supervise: Supervise, number: signal.Signals, tree_of: TreeOf, alive: Alive
) -> None:
    process = supervise()
    tree = tree_of(process.pid, 3)
    process.send_signal(number)
    assert process.wait(20) == 143
    assert not alive(tree)


def test_processes_that_ignore_sigterm_are_killed_after_the_grace_time(
    supervise: Supervise, tree_of: TreeOf, alive: Alive
) -> None:
    process = supervise("--stubborn", options=("--grace", "1"))
    tree = tree_of(process.pid, 3)
    process.terminate()
    time.sleep(0.5)
    assert alive(tree) == tree
    assert process.wait(20) == 143
    assert not alive(tree)


def test_the_time_limit_ends_the_whole_tree_with_code_124(supervise: Supervise, tree_of: TreeOf, alive: Alive) -> None:
    process = supervise("--stubborn", options=("--grace", "0.5", "--timeout", "2"))
    tree = tree_of(process.pid, 3)
    assert process.wait(20) == 124
    assert not alive(tree)


def test_the_tree_ends_when_the_supervisors_parent_is_killed(
    tmp_path: Path, tree_of: TreeOf, alive: Alive, wait_for: Callable[..., None], fake_launcher: list[str]
) -> None:
    """B079: SIGKILL of the step process; plain torchrun would train on."""
    code = (
        "import os, subprocess, sys; command = sys.argv[1:];"
        "process = subprocess.Popen([sys.executable, '-m', 'modalities_pipeline.orchestration.supervise', '--parent',"
        " str(os.getpid()), '--grace', '2', '--', *command], start_new_session=True);"
        "print(process.pid, flush=True); process.wait()"
    )
    launcher = [*fake_launcher, str(tmp_path / "metrics"), "60", "0", "--stubborn"]
    with subprocess.Popen([sys.executable, "-c", code, *launcher], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        supervisor = int(parent.stdout.readline())
        tree = tree_of(parent.pid, 4)
        assert supervisor in tree
        parent.kill()
    wait_for(lambda: not alive(tree), 15, "the tree ends")


def test_the_command_is_not_started_when_the_parent_is_gone_already(tmp_path: Path) -> None:
    supervisor = [sys.executable, "-m", "modalities_pipeline.orchestration.supervise", "--parent", "999999999"]
    command = [sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    assert subprocess.run([*supervisor, "--", *command], timeout=20).returncode == 143
    assert not (tmp_path / "ran").exists()


def test_two_commands_with_one_lock_run_one_after_the_other(
    supervise: Supervise, tmp_path: Path, tree_of: TreeOf
) -> None:
    options = ("--lock", str(tmp_path / "lock"))
    first = supervise(seconds=2, options=options)
    tree_of(first.pid, 3)
    second = supervise(seconds=0.1, options=options)
    time.sleep(1)
    assert not list(living_descendants(second.pid))
    assert first.wait(20) == 0
    assert second.wait(20) == 0
