"""Manifests, fingerprints, and what a materialization decides from them."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import (
    Action,
    BuildResult,
    Manifest,
    Policy,
    StageIdentity,
    decide,
    digest_of,
    explain_change,
    is_intact,
    manifest_path,
    produce,
    read_manifest,
)
from modalities_pipeline.exceptions import OutputExistsError

IDENTITY = StageIdentity("stage", "1", {"vocab_size": 10}, {"source": "sha256:" + "a" * 64})


def _build(content: str = "content") -> Callable[[Path], BuildResult]:
    def build(temporary: Path) -> BuildResult:
        temporary.write_text(content)
        return BuildResult({"num_documents": 3}, {"note": "ü"})

    return build


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A finished output with its manifest."""
    produce(IDENTITY, tmp_path / "x", _build(), FileExistencePolicy.ERROR)
    return tmp_path / "x"


def _manifest(output: Path) -> Manifest:
    manifest = read_manifest(output)
    assert manifest is not None
    return manifest


def test_a_manifest_tells_what_the_output_was_made_from(output: Path) -> None:
    manifest = _manifest(output)
    assert (manifest.stage, manifest.settings, manifest.inputs) == ("stage", {"vocab_size": 10}, IDENTITY.inputs)
    assert manifest.fingerprint == IDENTITY.fingerprint
    assert manifest.counts == {"num_documents": 3}
    assert manifest.details == {"note": "ü"}
    assert manifest.size_in_bytes == 7
    assert manifest.digest == digest_of(output)


@pytest.mark.parametrize(
    "other",
    [
        StageIdentity("other", "1", IDENTITY.settings, IDENTITY.inputs),
        StageIdentity("stage", "2", IDENTITY.settings, IDENTITY.inputs),
        StageIdentity("stage", "1", {"vocab_size": 11}, IDENTITY.inputs),
        StageIdentity("stage", "1", IDENTITY.settings, {"source": "sha256:b"}),
        StageIdentity("stage", "1", IDENTITY.settings, {"other": IDENTITY.inputs["source"]}),
    ],
)
def test_the_fingerprint_changes_with_whatever_decides_the_bytes(other: StageIdentity) -> None:
    assert other.fingerprint != IDENTITY.fingerprint


def test_the_fingerprint_does_not_depend_on_the_order_of_keys() -> None:
    first = StageIdentity("stage", "1", {"a": 1, "b": 2}, {"x": "1", "y": "2"})
    second = StageIdentity("stage", "1", {"b": 2, "a": 1}, {"y": "2", "x": "1"})
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize("policy", list(Policy))
def test_a_missing_output_is_always_built(tmp_path: Path, policy: Policy) -> None:
    assert decide(IDENTITY, tmp_path / "x", policy).action is Action.BUILD


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (Policy.AUTO, Action.CACHE_HIT),
        (Policy.ERROR, Action.CACHE_HIT),
        (Policy.SKIP, Action.CACHE_HIT),
        (Policy.OVERRIDE, Action.BUILD),
    ],
)
def test_an_output_that_is_up_to_date_is_reused_unless_overridden(output: Path, policy: Policy, action: Action) -> None:
    assert decide(IDENTITY, output, policy).action is action


@pytest.mark.parametrize(
    ("policy", "action"),
    [(Policy.AUTO, Action.BUILD), (Policy.SKIP, Action.KEEP_OUT_OF_DATE), (Policy.OVERRIDE, Action.BUILD)],
)
def test_an_output_that_is_out_of_date_is_rebuilt_or_kept(output: Path, policy: Policy, action: Action) -> None:
    changed = StageIdentity("stage", "1", {"vocab_size": 11}, IDENTITY.inputs)
    assert decide(changed, output, policy).action is action


def test_the_policy_error_says_what_changed_from_what_to_what(output: Path) -> None:
    changed = StageIdentity("stage", "2", {"vocab_size": 11, "new": 1}, {"source": "sha256:" + "b" * 64})
    with pytest.raises(OutputExistsError) as caught:
        decide(changed, output, Policy.ERROR)
    message = str(caught.value)
    for part in (
        str(output),
        "code version 1 -> 2",
        "setting vocab_size: 10 -> 11",
        "setting new is new",
        "input source: sha256:aaaaaaa -> sha256:bbbbbbb",
    ):
        assert part in message


def test_a_damaged_output_is_out_of_date(output: Path) -> None:
    output.write_text("CONTENT")
    os.utime(output, ns=(0, 0))
    assert not is_intact(output, _manifest(output))
    assert decide(IDENTITY, output, Policy.AUTO).action is Action.BUILD
    assert "bytes differ" in str(explain_change(IDENTITY, output))


def test_a_touched_output_with_the_same_bytes_is_intact(output: Path) -> None:
    os.utime(output, ns=(0, 0))
    assert explain_change(IDENTITY, output) is None


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"manifest_version": 999}'])
def test_an_output_without_a_usable_manifest_is_not_done(output: Path, content: str | None) -> None:
    manifest_path(output).unlink()
    if content is not None:
        manifest_path(output).write_text(content)
    assert read_manifest(output) is None
    assert "no manifest" in str(explain_change(IDENTITY, output))


def test_a_failing_rebuild_leaves_the_old_output_and_manifest(output: Path) -> None:
    def fail(temporary: Path) -> BuildResult:
        temporary.write_text("half")
        raise RuntimeError

    old = (output.read_bytes(), manifest_path(output).read_bytes())
    with pytest.raises(RuntimeError):
        produce(IDENTITY, output, fail, FileExistencePolicy.OVERRIDE)
    assert (output.read_bytes(), manifest_path(output).read_bytes()) == old


def test_producing_respects_the_file_existence_policy(output: Path) -> None:
    with pytest.raises(OutputExistsError):
        produce(IDENTITY, output, _build("new"), FileExistencePolicy.ERROR)
    assert produce(IDENTITY, output, _build("new"), FileExistencePolicy.SKIP) is None
    assert output.read_text() == "content"
    manifest = produce(IDENTITY, output, _build("new"), FileExistencePolicy.OVERRIDE)
    assert manifest is not None
    assert output.read_text() == "new"
    assert manifest.digest == digest_of(output) == _manifest(output).digest


def test_a_directory_is_an_output_like_any_other(tmp_path: Path) -> None:
    def build(temporary: Path) -> BuildResult:
        (temporary / "sub").mkdir(parents=True)
        (temporary / "sub" / "file").write_text("content")
        return BuildResult()

    manifest = produce(IDENTITY, tmp_path / "x", build, FileExistencePolicy.ERROR)
    assert manifest is not None
    assert manifest.size_in_bytes == 7
    assert explain_change(IDENTITY, tmp_path / "x") is None
    (tmp_path / "x" / "sub" / "file").write_text("CONTENT")
    os.utime(tmp_path / "x" / "sub" / "file", ns=(0, 0))
    assert explain_change(IDENTITY, tmp_path / "x") is not None


def test_digests_come_from_the_manifest_only_while_it_is_true(output: Path) -> None:
    path = manifest_path(output)
    path.write_text(json.dumps({**json.loads(path.read_text()), "digest": "sha256:recorded"}))
    assert digest_of(output) == "sha256:recorded"
    output.write_text("other content")
    assert digest_of(output) != "sha256:recorded"
