"""Locks of outputs: two runs never produce one output at the same time."""

import contextlib
import fcntl
import io
import logging
import os
import re
import stat
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from modalities_pipeline.data.files import os_errors_named, remove, replaced_path, temporary_path
from modalities_pipeline.exceptions import OutputLockedError, UserError

logger = logging.getLogger(__name__)

_TOKEN = re.compile(r"[0-9a-f]{32}\n")


def lock_path_of(output_path: Path) -> Path:
    """`.<name>.lock`, beside the output."""
    return output_path.with_name(f".{output_path.name}.lock")


@contextlib.contextmanager
def output_lock(output_path: Path, wait: bool = True, also_written: Sequence[Path] = ()) -> Iterator[str]:
    """Hold the lock of `output_path`, the file `lock_path_of` it; the kernel frees it when its holder dies.

    Yields a token for `atomic_path`. What a killed holder had written under its token, for the output or for the paths
    `also_written` with it, is removed.

    Raises:
        OutputLockedError: `wait` is False and another process holds it; the message names the holder.
        OutputNotWritableError: the system refuses to write there.
    """
    lock_path = lock_path_of(output_path)
    with os_errors_named(output_path):
        output_path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(lock_path, output_path, wait) as lock:
        _, old_token = _read_lock(lock)
        for path in (output_path, *also_written) if old_token else ():
            remove(temporary_path(path, old_token))
            remove(replaced_path(temporary_path(path, old_token)))
        token = uuid.uuid4().hex
        with os_errors_named(output_path):
            _write_lock(lock, f"process {os.getpid()} on {os.uname().nodename}\n{token}\n".encode())
        try:
            yield token
        finally:
            lock_path.unlink(missing_ok=True)  # one that stays tells of a holder that was killed


@contextlib.contextmanager
def _locked(lock_path: Path, output_path: Path, wait: bool) -> Iterator[io.FileIO]:
    """The lock file, held. A file that its last holder removed meanwhile is no lock: then there is another one."""
    while True:
        with os_errors_named(output_path):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            # not buffered: what a full disk refuses would be written, and refused, again when the file is closed
            lock = io.FileIO(os.open(lock_path, flags, 0o666), "r+")
        with lock:
            if not stat.S_ISREG(os.fstat(lock.fileno()).st_mode):
                raise UserError(f"{lock_path} is no file, so {output_path} cannot be locked. Remove it.")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder, _ = _read_lock(lock)
                if not wait:
                    raise OutputLockedError(f"{output_path} is being produced by another run ({holder}).") from None
                logger.info("Waiting for %s, which another run is producing (%s).", output_path, holder)
                fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, lock_path):
                yield lock
                return


def _is_at(file: io.FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _read_lock(lock: io.FileIO) -> tuple[str, str]:
    """Who holds a lock, or held it last, and the token of its temporary files."""
    lock.seek(0)
    holder, _, token = lock.readall().decode(errors="replace").partition("\n")
    return holder or "unknown", token.strip() if _TOKEN.fullmatch(token) else ""


def _write_lock(lock: io.FileIO, content: bytes) -> None:
    lock.seek(0)
    lock.truncate()
    while content:
        content = content[lock.write(content) :]
