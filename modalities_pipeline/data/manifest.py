"""The record beside every output: what it was made from and what it contains.

`<output>.manifest.json` is written last; without it a stage is not done. The fingerprint is a hash of what decides the
output's bytes (stage, code version, settings, digests of the inputs) and of nothing else.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import (
    atomic_path,
    digest_directory,
    digest_file,
    digest_strings,
    size_in_bytes,
)
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError

_MANIFEST_VERSION = 2


@dataclasses.dataclass(frozen=True)
class StageIdentity:
    """All that decides the bytes of one output.

    Attributes:
        stage: name of the stage, for example "raw_index".
        code_version: version of the stage's implementation; raised when the same inputs would give other bytes.
        settings: JSON values that change bytes; never paths, worker counts or batch sizes.
        inputs: name of each input (stable across machines: no absolute paths) -> digest.
    """

    stage: str
    code_version: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        """`xxh128:<hex>` of the identity's canonical JSON."""
        return digest_strings([json.dumps(dataclasses.asdict(self), sort_keys=True, ensure_ascii=False)])


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What is known of a finished output. `counts` hold numbers about its content, `details` anything else."""

    stage: str
    code_version: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    fingerprint: str
    digest: str
    size_in_bytes: int
    modified_at_in_ns: int
    counts: dict[str, int | float]
    details: dict[str, Any]
    duration_in_s: float
    created_at: str
    python_version: str
    package_version: str
    manifest_version: int = _MANIFEST_VERSION


@dataclasses.dataclass
class BuildResult:
    """What a stage's build function reports.

    Attributes:
        counts: numbers about the output, for `Manifest.counts`.
        details: anything else, for `Manifest.details`.
        input_digests: inputs of the identity that were hashed while they were read.
        output_digest: of the output, if it was hashed while it was written.
    """

    counts: dict[str, int | float] = dataclasses.field(default_factory=dict)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    input_digests: dict[str, str] = dataclasses.field(default_factory=dict)
    output_digest: str | None = None


def manifest_path(output_path: Path) -> Path:
    """`<output>.manifest.json`, beside the output."""
    return output_path.with_name(output_path.name + ".manifest.json")


def read_manifest(output_path: Path) -> Manifest | None:
    """The manifest of an output, or None if there is none, or none that this version can read."""
    path = manifest_path(output_path)
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        manifest = Manifest(**content)
    except (ValueError, TypeError, RecursionError):  # ValueError: neither JSON nor UTF-8
        return None
    return manifest if manifest.manifest_version == _MANIFEST_VERSION and _has_right_types(manifest) else None


def _has_right_types(manifest: Manifest) -> bool:
    texts = (manifest.stage, manifest.code_version, manifest.fingerprint, manifest.digest)
    mappings = (manifest.settings, manifest.inputs, manifest.counts, manifest.details)
    numbers = (manifest.size_in_bytes, manifest.modified_at_in_ns)
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(mapping, dict) for mapping in mappings)
        and all(isinstance(number, int) for number in numbers)
    )


def is_intact(output_path: Path, manifest: Manifest) -> bool:
    """Whether the output is still what its manifest describes: same size and time of change, or same digest."""
    if not output_path.exists() or size_in_bytes(output_path) != manifest.size_in_bytes:
        return False
    return modified_at_in_ns(output_path) == manifest.modified_at_in_ns or _digest(output_path) == manifest.digest


def digest_of(path: Path) -> str:
    """Digest of a file or directory; taken from its manifest where that is intact, else computed."""
    manifest = read_manifest(path)
    if manifest is not None and is_intact(path, manifest):
        return manifest.digest
    return _digest(path)


def input_digest_of(path: Path, made_by: str | None = None) -> str:
    """Digest of a file or directory that a stage reads; what has no manifest comes from elsewhere and is hashed.

    Args:
        path: the input.
        made_by: name of the asset or stage that makes it, for the messages.

    Raises:
        DatasetNotFoundError: it does not exist.
        DatasetFormatError: it has a manifest, but is not what that describes.
    """
    if not path.exists():
        advice = (
            f"Materialize {made_by} first." if made_by else "Materialize the stage that makes it, or mend the path."
        )
        raise DatasetNotFoundError(f"{path} does not exist. {advice}")
    manifest = read_manifest(path)
    if manifest is None:
        return _digest(path)
    if not is_intact(path, manifest):
        raise DatasetFormatError(
            f"{path} is damaged: its bytes differ from its manifest; materialize {made_by or manifest.stage} again."
        )
    return manifest.digest


def record(
    identity: StageIdentity, output_path: Path, result: BuildResult, duration_in_s: float, token: str | None = None
) -> Manifest:
    """Write and return the manifest of an output that is complete on disk; for `token` see `atomic_path`."""
    manifest = Manifest(
        stage=identity.stage,
        code_version=identity.code_version,
        settings=dict(identity.settings),
        inputs=dict(identity.inputs),
        fingerprint=identity.fingerprint,
        digest=result.output_digest or _digest(output_path),
        size_in_bytes=size_in_bytes(output_path),
        modified_at_in_ns=modified_at_in_ns(output_path),
        counts=result.counts,
        details=result.details,
        duration_in_s=round(duration_in_s, 3),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        python_version=platform.python_version(),
        package_version=_package_version(),
    )
    with atomic_path(manifest_path(output_path), token) as temporary:
        temporary.write_text(
            json.dumps(dataclasses.asdict(manifest), indent=2, ensure_ascii=False) + "\n",
            "utf-8",
            errors="backslashreplace",
        )
    return manifest


def _digest(path: Path) -> str:
    return digest_directory(path) if path.is_dir() else digest_file(path)


def modified_at_in_ns(path: Path) -> int:
    """Latest time of change of a file, or of any file below a directory."""
    if path.is_dir():
        return max((file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()), default=0)
    return path.stat().st_mtime_ns


@functools.cache  # reading the metadata of a distribution takes longer than all else here
def _package_version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("modalities-pipeline")
    return "unknown"
