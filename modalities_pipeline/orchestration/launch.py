"""Starts torchrun under the supervisor, follows its metrics, and ends it whatever happens."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from modalities_pipeline.exceptions import TrainingError
from modalities_pipeline.orchestration.metrics_file import MetricsLine, NewLines
from modalities_pipeline.orchestration.parent_watch import parent_is_alive
from modalities_pipeline.orchestration.spec import LauncherSpec
from modalities_pipeline.orchestration.supervise import EXIT_CODE_TIMEOUT, kill_descendants
from modalities_pipeline.orchestration.training_run import TrainingRun

_POLL_INTERVAL_IN_S = 0.5
_SUPERVISOR_EXTRA_TIME_IN_S = 15.0  # for the sweep that follows the grace time
_NUM_TAIL_LINES = 20
_ERROR_PREFIX = "Error: "  # of the command line's messages, which may have several lines,
_LOG_LINE = re.compile(r"Traceback |[DIWEF]\d{4} |\d{4}-\d\d-\d\d |\[")  # which end where something is logged


class TrainingProcessError(TrainingError):
    """The training processes ended with an error.

    `is_user_error` says that the command line reported the error itself, so that a retry would end the same way.
    """

    def __init__(self, message: str, is_user_error: bool) -> None:
        super().__init__(message)
        self.is_user_error = is_user_error


def training_command(run: TrainingRun, launcher: LauncherSpec) -> list[str]:
    """The torchrun command of a run; it resumes from the newest complete checkpoint if there is one."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(launcher.num_processes)),
        *("-m", "modalities_pipeline", "run", "--resume"),
        *("--config_file_path", str(run.config_path)),
        *("--experiments_root_path", str(run.folder.parent)),
        *("--experiment_id", run.folder.name),
    ]


def train(run: TrainingRun, launcher: LauncherSpec, command: list[str]) -> Iterator[MetricsLine]:
    """Run a training command to its end and yield what it adds to the run's metrics file meanwhile.

    Closing the iterator, an exception in its consumer, or the death of this process's parent ends the command and all
    its descendants.

    Raises:
        TrainingProcessError: the command failed or took too long; the message ends with the log's last lines.
        TrainingError: the parent of this process died.
    """
    started_by = os.getppid()
    metrics = NewLines(run.metrics_path)
    log_start = run.log_path.stat().st_size if run.log_path.exists() else 0
    process = _start(run, launcher, command)
    try:
        while (code := process.poll()) is None:
            yield from metrics.read()
            if not parent_is_alive(started_by):
                raise TrainingError("The Dagster process that started this step has died; training was stopped.")
            time.sleep(_POLL_INTERVAL_IN_S)
        yield from metrics.read()
    finally:
        _end(process, launcher.grace_in_s)
    if code != 0:
        raise _failure(code, run, launcher, log_start)


def _start(run: TrainingRun, launcher: LauncherSpec, command: list[str]) -> "subprocess.Popen[bytes]":
    supervisor = [
        *(sys.executable, "-m", "modalities_pipeline.orchestration.supervise"),
        *("--parent", str(os.getpid()), "--grace", str(launcher.grace_in_s)),
        *(("--timeout", str(launcher.timeout_in_s)) if launcher.timeout_in_s else ()),
        # held until the last process is gone, also when this one is killed: no two attempts write into one folder
        *("--lock", str(run.folder / ".training.lock"), "--"),
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(launcher.num_threads_per_process),
        "PYTHONUNBUFFERED": "1",
    }
    with run.log_path.open("ab") as log:
        return subprocess.Popen(
            [*supervisor, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _end(process: "subprocess.Popen[bytes]", grace_in_s: float) -> None:
    """Let the supervisor stop the command and sweep up; if it does not answer in time, do both here."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(grace_in_s + _SUPERVISOR_EXTRA_TIME_IN_S)
    finally:
        if process.poll() is None:
            kill_descendants(process.pid)
            process.kill()
            process.wait()


def _failure(code: int, run: TrainingRun, launcher: LauncherSpec, log_start: int) -> TrainingProcessError:
    with run.log_path.open("rb") as file:
        file.seek(log_start)
        lines = file.read().decode(errors="replace").splitlines()
    errors = _error_messages(lines)
    if errors:
        message = "\n".join(["Training failed:", *errors, f"The whole log: {run.log_path}"])
        return TrainingProcessError(message, is_user_error=True)
    what = (
        f"took longer than {launcher.timeout_in_s} s" if code == EXIT_CODE_TIMEOUT else f"ended with exit code {code}"
    )
    tail = "\n".join(lines[-_NUM_TAIL_LINES:])
    return TrainingProcessError(f"Training {what}. The last lines of {run.log_path}:\n{tail}", is_user_error=False)


def _error_messages(lines: list[str]) -> list[str]:
    """What the command line reported as errors; every rank may have, so each message once."""
    messages: list[list[str]] = []
    is_inside = False
    for line in lines:
        is_start = line.startswith(_ERROR_PREFIX)
        is_inside = is_start or (is_inside and not _LOG_LINE.match(line))
        if is_start:
            messages.append([line.removeprefix(_ERROR_PREFIX)])
        elif is_inside:
            messages[-1].append(line)
    return list(dict.fromkeys("\n".join(message) for message in messages))
