"""What to do about an output that exists: build, reuse or keep it, and why; by comparing fingerprints."""

import dataclasses
import enum
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import shorten_digest
from modalities_pipeline.data.manifest import Manifest, StageIdentity, is_intact, manifest_path, read_manifest
from modalities_pipeline.exceptions import OutputExistsError


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
        if manifest_path(output_path).exists():
            return "its manifest is damaged, or of another version of this package"
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
    return shorten_digest(str(value))
