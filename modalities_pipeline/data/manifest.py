"""The record beside every output: what it was made from and what it contains.

`<output>.manifest.json` is written last; without it a stage is not done. The fingerprint is a hash of what decides the
output's bytes (stage, code version, settings, digests of the inputs) and of nothing else.
"""

import contextlib
import dataclasses
import enum
import importlib.metadata
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import (
    FileExistencePolicy,
    atomic_path,
    digest_directory,
    digest_file,
    digest_strings,
    enforce_file_existence_policy,
    output_lock,
    size_in_bytes,
)
from modalities_pipeline.exceptions import OutputExistsError

_MANIFEST_VERSION = 1


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
        """`sha256:<hex>` of the identity's canonical JSON."""
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
    """What a stage's build function reports: numbers for `Manifest.counts`, anything else for `Manifest.details`."""

    counts: dict[str, int | float] = dataclasses.field(default_factory=dict)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


def manifest_path(output_path: Path) -> Path:
    """`<output>.manifest.json`, beside the output."""
    return output_path.with_name(output_path.name + ".manifest.json")


def read_manifest(output_path: Path) -> Manifest | None:
    """The manifest of an output, or None if there is none, or none that this version can read."""
    path = manifest_path(output_path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Manifest(**content) if content["manifest_version"] == _MANIFEST_VERSION else None
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        return None


def is_intact(output_path: Path, manifest: Manifest) -> bool:
    """Whether the output is still what its manifest describes: same size and time of change, or same digest."""
    if not output_path.exists() or size_in_bytes(output_path) != manifest.size_in_bytes:
        return False
    return _modified_at_in_ns(output_path) == manifest.modified_at_in_ns or _digest(output_path) == manifest.digest


def digest_of(path: Path) -> str:
    """Digest of a file or directory; taken from its manifest where that is intact, else computed."""
    manifest = read_manifest(path)
    if manifest is not None and is_intact(path, manifest):
        return manifest.digest
    return _digest(path)


def produce(
    identity: StageIdentity,
    output_path: Path,
    build: Callable[[Path], BuildResult],
    policy: FileExistencePolicy,
) -> Manifest | None:
    """Build one output safely: policy, lock, atomic replacement, manifest. Shared by all stages.

    `build` gets a temporary path, creates the file or directory there, and reports counts. Returns the manifest, or
    None if the policy is SKIP and the output exists.
    """
    if enforce_file_existence_policy(output_path, policy):
        return None
    with output_lock(output_path):
        if enforce_file_existence_policy(output_path, policy):
            return None
        started = time.perf_counter()
        with atomic_path(output_path) as temporary:
            result = build(temporary)
            manifest_path(output_path).unlink(missing_ok=True)
        return record(identity, output_path, result, time.perf_counter() - started)


def record(identity: StageIdentity, output_path: Path, result: BuildResult, duration_in_s: float) -> Manifest:
    """Write and return the manifest of an output that is complete on disk."""
    manifest = Manifest(
        stage=identity.stage,
        code_version=identity.code_version,
        settings=dict(identity.settings),
        inputs=dict(identity.inputs),
        fingerprint=identity.fingerprint,
        digest=_digest(output_path),
        size_in_bytes=size_in_bytes(output_path),
        modified_at_in_ns=_modified_at_in_ns(output_path),
        counts=result.counts,
        details=result.details,
        duration_in_s=round(duration_in_s, 3),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        python_version=platform.python_version(),
        package_version=_package_version(),
    )
    with atomic_path(manifest_path(output_path)) as temporary:
        temporary.write_text(json.dumps(dataclasses.asdict(manifest), indent=2, ensure_ascii=False) + "\n", "utf-8")
    return manifest


class Policy(enum.Enum):
    """File existence policy of a whole materialization; see `decide`."""

    AUTO = "auto"
    ERROR = "error"
    SKIP = "skip"
    OVERRIDE = "override"


class Action(enum.Enum):
    """What a materialization does about one output."""

    BUILD = "build"
    CACHE_HIT = "cache_hit"
    KEEP_OUT_OF_DATE = "keep_out_of_date"


@dataclasses.dataclass(frozen=True)
class Decision:
    """An action and the reason for it, in words for the user."""

    action: Action
    reason: str


def decide(identity: StageIdentity, output_path: Path, policy: Policy) -> Decision:
    """Decide about one output by comparing fingerprints.

    | output                | auto      | error     | skip      | override |
    |-----------------------|-----------|-----------|-----------|----------|
    | missing               | build     | build     | build     | build    |
    | fresh and intact      | cache hit | cache hit | cache hit | build    |
    | out of date, damaged  | build     | error     | keep      | build    |

    Raises:
        OutputExistsError: the output is out of date and the policy is ERROR; the message says what changed.
    """
    if not output_path.exists():
        return Decision(Action.BUILD, "missing")
    if policy is Policy.OVERRIDE:
        return Decision(Action.BUILD, "policy override")
    change = explain_change(identity, output_path)
    if change is None:
        return Decision(Action.CACHE_HIT, "up to date")
    match policy:
        case Policy.SKIP:
            return Decision(Action.KEEP_OUT_OF_DATE, change)
        case Policy.ERROR:
            raise OutputExistsError(
                f"{output_path} is out of date ({change}) and the policy is 'error'. "
                "Use policy 'auto' or 'override' to rebuild it, or 'skip' to keep it."
            )
        case _:
            return Decision(Action.BUILD, change)


def explain_change(identity: StageIdentity, output_path: Path) -> str | None:
    """Why the output is out of date, in words, or None if it is up to date and intact."""
    manifest = read_manifest(output_path)
    if manifest is None:
        return "no manifest: it was not finished, or not made by this pipeline"
    if manifest.fingerprint != identity.fingerprint:
        return "; ".join(_differences(manifest, identity))
    if not is_intact(output_path, manifest):
        return "its bytes differ from what the manifest says"
    return None


def _differences(manifest: Manifest, identity: StageIdentity) -> Iterator[str]:
    if manifest.code_version != identity.code_version:
        yield f"code version {manifest.code_version} -> {identity.code_version}"
    settings = json.loads(json.dumps(dict(identity.settings)))
    yield from _mapping_differences("setting", manifest.settings, settings)
    yield from _mapping_differences("input", manifest.inputs, identity.inputs)


def _mapping_differences(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            yield f"{kind} {key} was removed"
        elif key not in old:
            yield f"{kind} {key} is new"
        elif old[key] != new[key]:
            yield f"{kind} {key}: {_short(old[key])} -> {_short(new[key])}"


def _short(value: Any) -> str:
    text = str(value)
    return text[:14] if text.startswith("sha256:") else text


def _digest(path: Path) -> str:
    return digest_directory(path) if path.is_dir() else digest_file(path)


def _modified_at_in_ns(path: Path) -> int:
    """Latest time of change of a file, or of any file below a directory."""
    if path.is_dir():
        return max((file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()), default=0)
    return path.stat().st_mtime_ns


def _package_version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("modalities-pipeline")
    return "unknown"
