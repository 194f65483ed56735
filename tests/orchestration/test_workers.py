"""Parallel builds: all done, the first failure ends them, and nothing outlives the process that started them."""

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modalities_pipeline.exceptions import DatasetFormatError, RunningEnvError
from modalities_pipeline.orchestration.workers import num_cpus, run_in_processes

pytestmark = pytest.mark.multi_process


def write_own_process_id(path: Path) -> None:
    path.write_text(str(os.getpid()))


def write_num_cpus(path: Path) -> None:
    path.write_text(str(num_cpus()))


def fail(message: str) -> None:
    raise DatasetFormatError(message)


def kill_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_long(path: Path) -> None:
    path.write_text(str(os.getpid()))
    time.sleep(120)


def test_everything_is_built_and_counted_in_other_processes(tmp_path: Path) -> None:
    builds = [functools.partial(write_own_process_id, tmp_path / str(number)) for number in range(5)]
    assert list(run_in_processes(builds, 2)) == [1, 2, 3, 4, 5]
    process_ids = {int((tmp_path / str(number)).read_text()) for number in range(5)}
    assert os.getpid() not in process_ids
    assert len(process_ids) <= 2


def test_workers_share_the_cpus(tmp_path: Path) -> None:
    builds = [functools.partial(write_num_cpus, tmp_path / str(number)) for number in range(3)]
    list(run_in_processes(builds, 3))
    shares = [(tmp_path / str(number)).read_text() for number in range(3)]
    assert shares == [str(max((os.cpu_count() or 1) // 3, 1))] * 3


def test_the_first_failure_is_raised_as_it_was_and_ends_the_others(tmp_path: Path) -> None:
    builds = [functools.partial(wait_long, tmp_path / "waiting"), functools.partial(fail, "a.jsonl, line 3: no")]
    started, others = time.monotonic(), set(multiprocessing.active_children())
    with pytest.raises(DatasetFormatError, match=r"^a\.jsonl, line 3: no$"):
        list(run_in_processes(builds, 2))
    assert time.monotonic() - started < 60
    assert set(multiprocessing.active_children()) <= others


def test_a_worker_that_dies_is_an_error_and_no_hang() -> None:
    with pytest.raises(RunningEnvError, match="worker process died"):
        list(run_in_processes([kill_oneself, kill_oneself], 2))


def test_workers_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    code = f"""
import functools, pathlib
from tests.orchestration.test_workers import num_cpus, run_in_processes, wait_long
if __name__ == "__main__":
    paths = [pathlib.Path({str(tmp_path)!r}) / name for name in "ab"]
    list(run_in_processes([functools.partial(wait_long, path) for path in paths], 2))
"""
    script = tmp_path / "start.py"
    script.write_text(code)
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(root)})
    try:
        _wait_until(lambda: all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in "ab"))
    finally:
        process.kill()
        process.wait()
    workers = [int((tmp_path / name).read_text()) for name in "ab"]
    _wait_until(lambda: not any(_is_alive(worker) for worker in workers))


def _is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _wait_until(condition: object, time_limit_in_s: float = 60) -> None:
    deadline = time.monotonic() + time_limit_in_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)
