"""Steps that end with the process that asked for them, so that killing a run leaves nothing at work."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator

_POLL_INTERVAL_IN_S = 1.0
_EXIT_CODE = 1


def parent_is_alive(process_id: int) -> bool:
    """Whether the process that started this one, once `os.getppid()`, still runs.

    Dagster's steps are forked by a server, which outlives the process that executes the run as long as any step runs;
    multiprocessing knows the process that asked for the step.
    """
    asked_by = multiprocessing.parent_process()
    return os.getppid() == process_id and (asked_by is None or asked_by.is_alive())


@contextlib.contextmanager
def ends_with_parent() -> Iterator[None]:
    """While this is open, end this process at once when its parent dies, even by SIGKILL.

    There is nobody left to be told; unfinished outputs are as they were before.
    """
    started_by = os.getppid()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_POLL_INTERVAL_IN_S):
            if not parent_is_alive(started_by):
                os._exit(_EXIT_CODE)

    thread = threading.Thread(target=watch, name="parent watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
