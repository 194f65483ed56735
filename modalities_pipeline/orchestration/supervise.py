"""Run a command so that nothing of it outlives this process, and this process does not outlive its parent.

`python -m modalities_pipeline.orchestration.supervise --parent PID -- COMMAND ...`

torchrun puts every worker into a session of its own, so no process group reaches them all. The supervisor therefore
adopts orphans (child subreaper), is told by the kernel when its parent dies (parent-death signal), and kills every
descendant found in the process table before it exits. Only the standard library is imported.
"""

import argparse
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

EXIT_CODE_TIMEOUT = 124
EXIT_CODE_TERMINATED = 128 + signal.SIGTERM

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_INTERVAL_IN_S = 0.1
_SWEEP_TIME_LIMIT_IN_S = 10.0


class Supervisor:
    """Starts one command and sees to its end.

    Args:
        parent: id of the process that must stay alive; when it dies, the command is stopped.
        grace_in_s: how long the command may take to end after SIGTERM before its whole tree is killed.
        timeout_in_s: longest run time, or None.
        lock_path: file whose lock is held while anything of the command may live, or None.
    """

    def __init__(
        self, parent: int, grace_in_s: float, timeout_in_s: float | None = None, lock_path: Path | None = None
    ) -> None:
        self._parent = parent
        self._grace_in_s = grace_in_s
        self._timeout_in_s = timeout_in_s
        self._lock_path = lock_path
        self._asked_to_stop = False

    def run(self, command: Sequence[str]) -> int:
        """Run the command to its end and return the exit code for this process.

        The code is the command's own (128 + n for signal n), 124 after the time limit, 143 when told to stop.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        die_with_parent()
        _set_process_control(_PR_SET_CHILD_SUBREAPER, 1)
        with contextlib.ExitStack() as stack:
            if self._lock_path is not None:
                self._wait_for_lock(stack.enter_context(open(self._lock_path, "a")))
            if self._should_stop():
                return EXIT_CODE_TERMINATED
            stack.callback(kill_descendants, os.getpid())
            return self._watch(subprocess.Popen(command, preexec_fn=die_with_parent))

    def _wait_for_lock(self, lock: IO[str]) -> None:
        while not self._should_stop():
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(_POLL_INTERVAL_IN_S)

    def _watch(self, child: "subprocess.Popen[bytes]") -> int:
        started = time.monotonic()
        while (code := child.poll()) is None:
            if self._should_stop():
                self._stop(child)
                return EXIT_CODE_TERMINATED
            if self._timeout_in_s is not None and time.monotonic() - started > self._timeout_in_s:
                self._stop(child)
                return EXIT_CODE_TIMEOUT
            time.sleep(_POLL_INTERVAL_IN_S)
        return code if code >= 0 else 128 - code

    def _stop(self, child: "subprocess.Popen[bytes]") -> None:
        child.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(self._grace_in_s)

    def _should_stop(self) -> bool:
        return self._asked_to_stop or os.getppid() != self._parent

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_stop = True


def kill_descendants(process_id: int) -> None:
    """SIGKILL all descendants of a process until none is left; new ones that appear meanwhile are found too."""
    deadline = time.monotonic() + _SWEEP_TIME_LIMIT_IN_S
    while (descendants := list(living_descendants(process_id))) and time.monotonic() < deadline:
        for descendant in descendants:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(descendant, signal.SIGKILL)
        time.sleep(_POLL_INTERVAL_IN_S / 5)


def living_descendants(process_id: int) -> Iterator[int]:
    """Ids of all processes below `process_id` that are not zombies."""
    table = list(_processes())
    parents = {process_id}
    while children := {pid for pid, parent, _ in table if parent in parents}:
        yield from (pid for pid, _, state in table if pid in children and state != "Z")
        table = [row for row in table if row[0] not in children]
        parents = children


def _processes() -> Iterator[tuple[int, int, str]]:
    """(process id, parent id, state letter) of every process."""
    if not Path("/proc/self/stat").exists():
        yield from _processes_by_ps()
        return
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # the second field is the program's name in brackets, which may itself hold blanks and brackets
            state, parent, *_ = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            yield int(entry.name), int(parent), state


def _processes_by_ps() -> Iterator[tuple[int, int, str]]:
    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE, text=True) as listing:
        for line in listing.communicate()[0].splitlines():
            process_id, parent, state = line.split()[:3]
            if int(process_id) != listing.pid:
                yield int(process_id), int(parent), state[0]


def _set_process_control(option: int, value: int) -> None:
    """Call Linux' prctl; elsewhere the parent is polled and orphans cannot be adopted."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def die_with_parent(signal_number: int = signal.SIGTERM) -> None:
    """In a child: get this signal should its parent die, even by SIGKILL."""
    _set_process_control(_PR_SET_PDEATHSIG, signal_number)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="supervise", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parent", type=int, required=True, help="process id that must stay alive")
    parser.add_argument("--grace", type=float, default=30.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--timeout", type=float, default=None, help="longest run time in seconds")
    parser.add_argument("--lock", type=Path, default=None, help="lock file held while anything of the command lives")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND ...")
    namespace = parser.parse_args(arguments)
    namespace.command = [part for i, part in enumerate(namespace.command) if (i, part) != (0, "--")]
    if not namespace.command:
        parser.error("no command given")
    return namespace


def main(arguments: Sequence[str] | None = None) -> int:
    """Supervise the command of the command line; returns the exit code."""
    options = _parse(arguments)
    return Supervisor(options.parent, options.grace, options.timeout, options.lock).run(options.command)


if __name__ == "__main__":
    sys.exit(main())
