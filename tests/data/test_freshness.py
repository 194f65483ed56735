"""What a materialization decides about an output, and the reasons it gives."""

import os
from pathlib import Path

import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.freshness import Action, Policy, decide, explain_change
from modalities_pipeline.data.manifest import (
    BuildResult,
    Manifest,
    StageIdentity,
    is_intact,
    manifest_path,
    read_manifest,
)
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import OutputExistsError

IDENTITY = StageIdentity("stage", "1", {"vocab_size": 10}, {"source": "xxh128:" + "a" * 64})


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A finished output with its manifest."""

    def build(temporary: Path) -> BuildResult:
        temporary.write_text("content")
        return BuildResult()

    produce(tmp_path / "x", [], FileExistencePolicy.ERROR, lambda: IDENTITY, build)
    return tmp_path / "x"


def _manifest(output: Path) -> Manifest:
    manifest = read_manifest(output)
    assert manifest is not None
    return manifest


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
    changed = StageIdentity("stage", "2", {"vocab_size": 11, "new": 1}, {"source": "xxh128:" + "b" * 64})
    with pytest.raises(OutputExistsError) as caught:
        decide(changed, output, Policy.ERROR)
    message = str(caught.value)
    for part in (
        str(output),
        "code version 1 -> 2",
        "setting vocab_size: 10 -> 11",
        "setting new is new",
        "input source: xxh128:aaaaaaaa -> xxh128:bbbbbbbb",
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
    reason = explain_change(IDENTITY, output)
    assert reason is not None
    assert "manifest" in reason
