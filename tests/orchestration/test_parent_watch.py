"""A step ends with the process that asked for it."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from modalities_pipeline.orchestration.parent_watch import ends_with_parent, parent_is_alive

pytestmark = pytest.mark.multi_process


def work_under_watch(path: Path) -> None:
    with ends_with_parent():
        path.write_text(str(os.getpid()))
        time.sleep(120)


def ask_for_work(path: Path) -> None:
    multiprocessing.get_context("spawn").Process(target=work_under_watch, args=(path,)).start()
    time.sleep(120)


def test_work_ends_when_the_process_that_asked_for_it_is_killed(tmp_path: Path) -> None:
    asking = multiprocessing.get_context("spawn").Process(target=ask_for_work, args=(tmp_path / "pid",))
    asking.start()
    _wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    assert asking.pid is not None
    os.kill(asking.pid, signal.SIGKILL)
    asking.join()
    worker = int((tmp_path / "pid").read_text())
    _wait_until(lambda: not _is_alive(worker))


def test_a_process_whose_parent_lives_works_on_and_the_watch_ends_with_the_work() -> None:
    assert parent_is_alive(os.getppid())
    started = time.monotonic()
    with ends_with_parent():
        pass
    assert time.monotonic() - started < 10


def _is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait_until(condition: object, time_limit_in_s: float = 60) -> None:
    deadline = time.monotonic() + time_limit_in_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)
