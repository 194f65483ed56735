"""Files that are either complete or not there: atomic writes, digests, locks, and the file existence policy.

Every stage writes through `atomic_path`, so killing it at any instant leaves the old output or none.
"""

import contextlib
import enum
import errno
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import xxhash

from modalities_pipeline.exceptions import (
    ModalitiesPipelineError,
    OutputExistsError,
    OutputNotWritableError,
    UserError,
)

logger = logging.getLogger(__name__)

_TEMPORARY_SUFFIX = ".tmp"
_REPLACED_SUFFIX = ".replaced.tmp"
_HASH_BLOCK_IN_BYTES = 256 << 10  # stays within a core's own cache
_MAX_NAME_IN_BYTES = 255  # of nearly all file systems
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
    """Raise `UserError` if `output_path` is one of `input_paths`, however it is spelt, or lies in one of them."""
    output = os.path.realpath(output_path)
    for input_path in input_paths:
        same = (
            os.path.samefile(output_path, input_path)
            if output_path.exists() and input_path.exists()
            else output == os.path.realpath(input_path)
        )
        if same or Path(output).is_relative_to(os.path.realpath(input_path)):
            raise UserError(f"The output {output_path} is also an input ({input_path}). Choose another output path.")


def refuse_irregular(paths: Sequence[Path]) -> None:
    """Raise `UserError` if a path is a device, a pipe or a socket, which have no content to keep or to come back to."""
    for path in paths:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"{path} is neither a file nor a folder. Name a file.")


def refuse_long_names(*output_paths: Path) -> None:
    """Raise `OutputNotWritableError` if the name of an output, or of what is written before it, is too long."""
    for path in output_paths:
        longest = replaced_path(temporary_path(path, uuid.uuid4().hex)).name
        if len(os.fsencode(longest)) > _MAX_NAME_IN_BYTES:
            raise OutputNotWritableError(f"{path} cannot be written: its name is too long. Choose a shorter one.")


@contextlib.contextmanager
def atomic_path(path: Path, token: str | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success sync it and rename it to `path`, on failure remove it.

    The body creates a file or a directory at the temporary path. A directory replaces an older directory only once
    it is complete. The temporary name holds `token` (that of `output_lock`, by which the next holder of the lock finds
    what a killed one left behind) or something unique.

    Raises:
        OutputNotWritableError: the system refuses to write, for example because the disk is full.
    """
    temporary = temporary_path(path, token or uuid.uuid4().hex)
    with os_errors_named(path), _replacement(temporary, path):
        yield temporary


def temporary_path(path: Path, token: str) -> Path:
    """Where an output is written before it is complete."""
    return path.with_name(f".{path.name}.{token}{_TEMPORARY_SUFFIX}")


@contextlib.contextmanager
def os_errors_named(path: Path) -> Iterator[None]:
    """Turn what the system refuses about an output into one message that names it; other errors pass."""
    try:
        yield
    except ModalitiesPipelineError:
        raise
    except OSError as error:
        # without a number: libraries use the class for faults of their own
        if error.errno is None or error.errno == errno.ENOMEM or not _concerns(error.filename, path):
            raise
        place = f" (at {error.filename})" if error.filename else ""
        raise OutputNotWritableError(
            f"{path} cannot be written: {os.strerror(error.errno)}{place}. Mend that, then run again."
        ) from error


def _concerns(filename: object, output_path: Path) -> bool:
    """Whether an error about this file is one about the output, its temporary files or the folder they are in."""
    if not isinstance(filename, str | bytes | os.PathLike):
        return True  # writing to an open file
    place = Path(os.fsdecode(filename))
    names = (output_path.name, f".{output_path.name}.")
    within = (place, *place.parents)
    return output_path.is_relative_to(place) or any(
        part.parent == output_path.parent and part.name.startswith(names) for part in within
    )


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
        remove(temporary)


def _replace_directory(source: Path, destination: Path) -> None:
    """Put directory `source` in the place of `destination`; a rename cannot replace a directory that is not empty."""
    if not destination.exists():
        os.rename(source, destination)
        return
    old = replaced_path(source)
    os.rename(destination, old)
    try:
        os.rename(source, destination)
    except BaseException:
        os.rename(old, destination)
        raise
    remove(old)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replaced_path(temporary: Path) -> Path:
    """Where an old directory is while the new one, at `temporary`, takes its place."""
    return temporary.with_suffix(_REPLACED_SUFFIX)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
        encoded = part.encode(errors="surrogateescape")  # names of files need not be UTF-8
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
