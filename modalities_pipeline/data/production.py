"""Building one output safely: checks, policy, lock, atomic replacement, manifest; the same for every stage."""

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from modalities_pipeline.data.files import (
    FileExistencePolicy,
    atomic_path,
    enforce_file_existence_policy,
    refuse_irregular,
    refuse_long_names,
    refuse_output_among_inputs,
    size_in_bytes,
)
from modalities_pipeline.data.locks import lock_path_of, output_lock
from modalities_pipeline.data.manifest import (
    BuildResult,
    Manifest,
    StageIdentity,
    manifest_path,
    modified_at_in_ns,
    record,
)
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError

logger = logging.getLogger(__name__)


def produce(
    output_path: Path,
    input_paths: Sequence[Path],
    policy: FileExistencePolicy,
    identity: Callable[[], StageIdentity],
    build: Callable[[Path], BuildResult],
) -> Manifest | None:
    """Build one output safely; shared by all stages.

    Before anything is touched: all inputs must be there and readable, none may be the output or be overwritten with it,
    names must fit the file system, and the policy must allow building. Then, under the output's lock, `identity` is
    asked (it may hash the inputs), and `build` gets a temporary path, creates the file or directory there, and reports
    counts. Only if no input changed meanwhile does it replace the old output.

    Returns the manifest, or None if the policy is SKIP and the output exists.

    Raises:
        DatasetNotFoundError: inputs do not exist, or cannot be read.
        DatasetFormatError: an input is damaged, or changed while it was read.
        UserError: the output is an input, or an input or the output is a device or a pipe.
        OutputExistsError: the output exists and the policy is ERROR.
        OutputNotWritableError: the system refuses to write, for example because the disk is full.
    """
    refuse_long_names(output_path, manifest_path(output_path))
    _refuse_unreadable(input_paths)
    refuse_irregular([output_path, *input_paths])
    refuse_to_replace(input_paths, output_path)
    if enforce_file_existence_policy(output_path, policy):
        return None
    with output_lock(output_path, also_written=[manifest_path(output_path)]) as token:
        if enforce_file_existence_policy(output_path, policy):
            return None
        started = time.perf_counter()
        states = {path: _state(path) for path in input_paths}
        with atomic_path(output_path, token) as temporary:
            made_from = identity()
            result = build(temporary)
            _refuse_changed(states)
            manifest_path(output_path).unlink(missing_ok=True)
            made_from = dataclasses.replace(made_from, inputs={**made_from.inputs, **result.input_digests})
        manifest = record(made_from, output_path, result, time.perf_counter() - started, token)
    logger.info("%s is done: %s", output_path, _summary(manifest))
    return manifest


def paths_written_with(output_path: Path) -> tuple[Path, Path, Path]:
    """The output itself, its manifest and its lock."""
    return output_path, manifest_path(output_path), lock_path_of(output_path)


def refuse_to_replace(input_paths: Sequence[Path], output_path: Path) -> None:
    """Raise `UserError` if an input would be lost with an output, its manifest or its lock."""
    for path in paths_written_with(output_path):
        refuse_output_among_inputs(path, input_paths)


def _summary(manifest: Manifest) -> str:
    """For example "num_documents 3, num_tokens 12, 1.5 s"; counts of nothing are left out."""
    counts = [f"{name} {value}" for name, value in manifest.counts.items() if value]
    return ", ".join([*counts, f"{manifest.duration_in_s:.1f} s"])


def _refuse_unreadable(input_paths: Sequence[Path]) -> None:
    # unlike `Path.exists`, `os.path.exists` never raises
    missing = [str(path) for path in input_paths if not os.path.exists(path)]
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        raise DatasetNotFoundError(f"{', '.join(missing)} {verb} not exist. Make the inputs first, or mend the paths.")
    closed = [str(path) for path in input_paths if not os.access(path, os.R_OK)]
    if closed:
        raise DatasetNotFoundError(f"{', '.join(closed)} cannot be read: no permission.")


def _refuse_changed(states: Mapping[Path, tuple[int, int]]) -> None:
    for path, state in states.items():
        if not path.exists() or _state(path) != state:
            raise DatasetFormatError(f"{path} changed while it was read. Run again when nothing writes to it.")


def _state(path: Path) -> tuple[int, int]:
    """Size in bytes and time of change, by which a change of an input is noticed."""
    return size_in_bytes(path), modified_at_in_ns(path)
