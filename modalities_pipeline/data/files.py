"""Files that are either complete or not there: atomic writes, digests, locks, and the file existence policy.

Every stage writes through `atomic_path`, so killing it at any instant leaves the old output or none.
"""

import contextlib
import enum
import fcntl
import io
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import xxhash

from modalities_pipeline.exceptions import (
    ModalitiesPipelineError,
    OutputExistsError,
    OutputLockedError,
    OutputNotWritableError,
    UserError,
)

logger = logging.getLogger(__name__)

_TEMPORARY_SUFFIX = ".tmp"
_REPLACED_SUFFIX = ".replaced.tmp"
_TOKEN = re.compile(r"[0-9a-f]{32}\n")
_HASH_BLOCK_IN_BYTES = 256 << 10  # stays within a core's own cache
_DIGEST_PREFIX = "xxh128:"


class FileExistencePolicy(enum.Enum):
    """What to do when an output is already there."""

    ERROR = "error"
    OVERRIDE = "override"
    SKIP = "skip"


def enforce_file_existence_policy(file_path: Path, file_existence_policy: FileExistencePolicy) -> bool:
    """Say whether processing should stop because of what is at `file_path`; nothing is deleted.

    Returns True (stop) for SKIP on an existing path, False otherwise. Unlike Modalities, OVERRIDE keeps the old file
    until its successor is complete.

    Raises:
        OutputExistsError: the path exists and the policy is ERROR.
        UserError: the policy is not a `FileExistencePolicy`.
    """
    if not isinstance(file_existence_policy, FileExistencePolicy):
        names = ", ".join(policy.value for policy in FileExistencePolicy)
        raise UserError(f"Unknown file existence policy {file_existence_policy!r}. Use one of: {names}.")
    if not file_path.exists():
        return False
    match file_existence_policy:
        case FileExistencePolicy.SKIP:
            logger.warning("%s exists already; skipping.", file_path)
            return True
        case FileExistencePolicy.OVERRIDE:
            return False
        case FileExistencePolicy.ERROR:
            raise OutputExistsError(
                f"{file_path} exists already. Delete it, choose another output, or set the file existence policy to "
                "'override' or 'skip'."
            )


def refuse_output_among_inputs(output_path: Path, input_paths: Sequence[Path]) -> None:
    """Raise `UserError` if `output_path` is one of `input_paths`, however it is spelt (`a/../x`, links)."""
    for input_path in input_paths:
        same = (
            os.path.samefile(output_path, input_path)
            if output_path.exists() and input_path.exists()
            else output_path.resolve() == input_path.resolve()
        )
        if same:
            raise UserError(f"The output {output_path} is also an input ({input_path}). Choose another output path.")


@contextlib.contextmanager
def atomic_path(path: Path, token: str | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success sync it and rename it to `path`, on failure remove it.

    The body creates a file or a directory at the temporary path. A directory replaces an older directory only once
    it is complete. The temporary name holds `token` (that of `output_lock`, by which the next holder of the lock finds
    what a killed one left behind) or something unique.

    Raises:
        OutputNotWritableError: the system refuses to write, for example because the disk is full.
    """
    temporary = _temporary_path(path, token or uuid.uuid4().hex)
    with _os_errors_named(path), _replacement(temporary, path):
        yield temporary


def _temporary_path(path: Path, token: str) -> Path:
    return path.with_name(f".{path.name}.{token}{_TEMPORARY_SUFFIX}")


@contextlib.contextmanager
def _os_errors_named(path: Path) -> Iterator[None]:
    """Turn what the system refuses into one message that names the output; the package's own errors pass."""
    try:
        yield
    except ModalitiesPipelineError:
        raise
    except OSError as error:
        if error.errno is None:  # libraries use the class for faults of their own
            raise
        place = f" (at {error.filename})" if error.filename else ""
        raise OutputNotWritableError(
            f"{path} cannot be written: {os.strerror(error.errno)}{place}. Mend that, then run again."
        ) from error


@contextlib.contextmanager
def _replacement(temporary: Path, path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
        if temporary.is_dir():
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            _replace_directory(temporary, path)
        else:
            _sync(temporary)
            os.replace(temporary, path)
        _sync(path.parent)
    finally:
        _remove(temporary)


def _replace_directory(source: Path, destination: Path) -> None:
    """Put directory `source` in the place of `destination`; a rename cannot replace a directory that is not empty."""
    if not destination.exists():
        os.rename(source, destination)
        return
    old = source.with_name(source.name.removesuffix(_TEMPORARY_SUFFIX) + _REPLACED_SUFFIX)
    os.rename(destination, old)
    try:
        os.rename(source, destination)
    except BaseException:
        os.rename(old, destination)
        raise
    _remove(old)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def output_lock(output_path: Path, wait: bool = True, also_written: Sequence[Path] = ()) -> Iterator[str]:
    """Hold the lock of `output_path`, a file `.<name>.lock` beside it; the kernel frees it when its holder dies.

    Yields a token for `atomic_path`. What a killed holder had written under its token, for the output or for the paths
    `also_written` with it, is removed.

    Raises:
        OutputLockedError: `wait` is False and another process holds it; the message names the holder.
        OutputNotWritableError: the system refuses to write there.
    """
    lock_path = output_path.with_name(f".{output_path.name}.lock")
    with _os_errors_named(output_path):
        output_path.parent.mkdir(parents=True, exist_ok=True)
        # not buffered: what a full disk refuses would be written, and refused, again when the file is closed
        lock = open(lock_path, "a+b", buffering=0)  # noqa: SIM115 (closed below)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, _ = _read_lock(lock)
            if not wait:
                raise OutputLockedError(f"{output_path} is being produced by another run ({holder}).") from None
            logger.info("Waiting for %s, which another run is producing (%s).", output_path, holder)
            fcntl.flock(lock, fcntl.LOCK_EX)
        _, old_token = _read_lock(lock)
        for path in (output_path, *also_written) if old_token else ():
            _remove(_temporary_path(path, old_token))
            _remove(_temporary_path(path, old_token).with_suffix(_REPLACED_SUFFIX))
        token = uuid.uuid4().hex
        with _os_errors_named(output_path):
            _write_lock(lock, f"process {os.getpid()} on {os.uname().nodename}\n{token}\n".encode())
        yield token


def _read_lock(lock: io.FileIO) -> tuple[str, str]:
    """Who holds a lock, or held it last, and the token of its temporary files."""
    lock.seek(0)
    holder, _, token = lock.readall().decode(errors="replace").partition("\n")
    return holder or "unknown", token.strip() if _TOKEN.fullmatch(token) else ""


def _write_lock(lock: io.FileIO, content: bytes) -> None:
    lock.truncate(0)
    while content:
        content = content[lock.write(content) :]


def digest_file(path: Path) -> str:
    """`xxh128:<hex>` of the bytes of a file; the command `xxhsum -H2` prints the same digits.

    XXH3 (https://xxhash.com) runs at memory speed, so that knowing every file costs next to nothing. It finds any
    accidental change; it is no protection from somebody who makes two files with one digest on purpose.
    """
    content = xxhash.xxh3_128()
    block = bytearray(_HASH_BLOCK_IN_BYTES)
    with open(path, "rb", buffering=0) as file:
        while num_bytes := file.readinto(block):
            content.update(memoryview(block)[:num_bytes])
    return digest_of_hash(content)


def digest_of_hash(content: xxhash.xxh3_128) -> str:
    """`xxh128:<hex>` of what was hashed while it was read or written."""
    return _DIGEST_PREFIX + content.hexdigest()


def digest_directory(path: Path) -> str:
    """`xxh128:<hex>` over the sorted relative names and digests of all files below a directory."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return digest_strings([f"{file.relative_to(path).as_posix()}={digest_file(file)}" for file in files])


def digest_strings(parts: list[str]) -> str:
    """`xxh128:<hex>` of a list of strings; each is length-prefixed, so no two lists collide by concatenation."""
    digest = xxhash.xxh3_128()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest_of_hash(digest)


def shorten_digest(digest: str) -> str:
    """A digest cut to the few characters that people compare; other texts stay as they are."""
    return digest[: len(_DIGEST_PREFIX) + 8] if digest.startswith(_DIGEST_PREFIX) else digest


def hex_of(digest: str) -> str:
    """The hexadecimal digits of a digest, for names of folders."""
    return digest.removeprefix(_DIGEST_PREFIX)


def size_in_bytes(path: Path) -> int:
    """Size of a file, or of all files below a directory."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size
