"""Manifests and fingerprints."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import (
    BuildResult,
    Manifest,
    StageIdentity,
    digest_of,
    input_digest_of,
    is_intact,
    manifest_path,
    read_manifest,
)
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import (
    DatasetFormatError,
    DatasetNotFoundError,
    OutputExistsError,
    OutputNotWritableError,
    UserError,
)

IDENTITY = StageIdentity("stage", "1", {"vocab_size": 10}, {"source": "xxh128:" + "a" * 64})


def _build(content: str = "content") -> Callable[[Path], BuildResult]:
    def build(temporary: Path) -> BuildResult:
        temporary.write_text(content)
        return BuildResult({"num_documents": 3}, {"note": "ü"})

    return build


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A finished output with its manifest."""
    produce(tmp_path / "x", [], FileExistencePolicy.ERROR, lambda: IDENTITY, _build())
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
        StageIdentity("stage", "1", IDENTITY.settings, {"source": "xxh128:b"}),
        StageIdentity("stage", "1", IDENTITY.settings, {"other": IDENTITY.inputs["source"]}),
    ],
)
def test_the_fingerprint_changes_with_whatever_decides_the_bytes(other: StageIdentity) -> None:
    assert other.fingerprint != IDENTITY.fingerprint


def test_the_fingerprint_does_not_depend_on_the_order_of_keys() -> None:
    first = StageIdentity("stage", "1", {"a": 1, "b": 2}, {"x": "1", "y": "2"})
    second = StageIdentity("stage", "1", {"b": 2, "a": 1}, {"y": "2", "x": "1"})
    assert first.fingerprint == second.fingerprint


def test_a_failing_rebuild_leaves_the_old_output_and_manifest(output: Path) -> None:
    def fail(temporary: Path) -> BuildResult:
        temporary.write_text("half")
        raise RuntimeError

    old = (output.read_bytes(), manifest_path(output).read_bytes())
    with pytest.raises(RuntimeError):
        produce(output, [], FileExistencePolicy.OVERRIDE, lambda: IDENTITY, fail)
    assert (output.read_bytes(), manifest_path(output).read_bytes()) == old


def test_producing_respects_the_file_existence_policy(output: Path) -> None:
    with pytest.raises(OutputExistsError):
        produce(output, [], FileExistencePolicy.ERROR, lambda: IDENTITY, _build("new"))
    assert produce(output, [], FileExistencePolicy.SKIP, lambda: IDENTITY, _build("new")) is None
    assert output.read_text() == "content"
    manifest = produce(output, [], FileExistencePolicy.OVERRIDE, lambda: IDENTITY, _build("new"))
    assert manifest is not None
    assert output.read_text() == "new"
    assert manifest.digest == digest_of(output) == _manifest(output).digest


def test_a_directory_is_an_output_like_any_other(tmp_path: Path) -> None:
    def build(temporary: Path) -> BuildResult:
        (temporary / "sub").mkdir(parents=True)
        (temporary / "sub" / "file").write_text("content")
        return BuildResult()

    manifest = produce(tmp_path / "x", [], FileExistencePolicy.ERROR, lambda: IDENTITY, build)
    assert manifest is not None
    assert manifest.size_in_bytes == 7
    assert is_intact(tmp_path / "x", manifest)
    (tmp_path / "x" / "sub" / "file").write_text("CONTENT")
    os.utime(tmp_path / "x" / "sub" / "file", ns=(0, 0))
    assert not is_intact(tmp_path / "x", manifest)


def test_digests_come_from_the_manifest_only_while_it_is_true(output: Path) -> None:
    path = manifest_path(output)
    path.write_text(json.dumps({**json.loads(path.read_text()), "digest": "xxh128:recorded"}))
    assert digest_of(output) == "xxh128:recorded"
    output.write_text("other content")
    assert digest_of(output) != "xxh128:recorded"


def test_an_input_that_differs_from_its_manifest_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "out"
    identity = StageIdentity("raw_index", "1", {}, {})
    produce(output, [], FileExistencePolicy.ERROR, lambda: identity, _build("aaa"))
    assert input_digest_of(output) == digest_of(output)
    output.write_text("bbb")
    with pytest.raises(DatasetFormatError, match=r"out is damaged: its bytes differ .*; materialize raw_index again"):
        input_digest_of(output)


def test_an_input_from_elsewhere_is_hashed_and_a_missing_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "foreign").write_text("abc")
    assert input_digest_of(tmp_path / "foreign") == digest_of(tmp_path / "foreign")
    with pytest.raises(DatasetNotFoundError, match=r"nowhere does not exist\. Materialize train/raw_index first"):
        input_digest_of(tmp_path / "nowhere", "train/raw_index")


def test_a_manifest_that_is_not_utf8_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("abc")
    manifest_path(tmp_path / "out").write_bytes(b'{"manifest_version": "\xff"}')
    assert read_manifest(tmp_path / "out") is None


def test_all_missing_inputs_are_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"one, .*two do not exist"):
        produce(tmp_path / "x", [tmp_path / "one", tmp_path / "two"], FileExistencePolicy.ERROR, _never, _build())
    assert not list(tmp_path.iterdir())


def test_an_output_among_the_inputs_is_refused_whatever_the_policy(output: Path) -> None:
    """B008."""
    other_spelling = output.parent / "d" / ".." / output.name
    (output.parent / "d").mkdir()
    with pytest.raises(UserError, match="also an input"):
        produce(other_spelling, [output], FileExistencePolicy.OVERRIDE, _never, _build())
    assert output.read_text() == "content"


def test_what_is_written_beside_an_output_overwrites_no_input(tmp_path: Path) -> None:
    """B008: the manifest and the lock have names of their own."""
    for name in ("x.manifest.json", ".x.lock"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(UserError, match="also an input"):
            produce(tmp_path / "x", [tmp_path / name], FileExistencePolicy.OVERRIDE, _never, _build())
        assert (tmp_path / name).read_text() == "precious"


def test_an_output_within_an_input_folder_is_refused(tmp_path: Path) -> None:
    """B008."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="also an input"):
        produce(tmp_path / "folder" / "x", [tmp_path / "folder"], FileExistencePolicy.ERROR, _never, _build())


def test_pipes_and_devices_are_neither_read_nor_replaced(tmp_path: Path) -> None:
    """Reading a pipe would wait for ever; a device that is replaced is gone for everybody."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="neither a file nor a folder"):
        produce(tmp_path / "x", [tmp_path / "pipe"], FileExistencePolicy.ERROR, _never, _build())
    with pytest.raises(UserError, match="neither a file nor a folder"):
        produce(tmp_path / "pipe", [], FileExistencePolicy.OVERRIDE, _never, _build())
    os.mkfifo(manifest_path(tmp_path / "y"))
    assert read_manifest(tmp_path / "y") is None


def test_a_name_too_long_for_the_manifest_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(OutputNotWritableError, match="name is too long"):
        produce(tmp_path / ("x" * 210), [], FileExistencePolicy.ERROR, _never, _build())
    assert not list(tmp_path.iterdir())


def test_nothing_but_output_and_manifest_stays(output: Path) -> None:
    assert sorted(path.name for path in output.parent.iterdir()) == ["x", "x.manifest.json"]


@pytest.mark.parametrize("wrong", [{"details": None}, {"digest": 7}, {"counts": []}, {"size_in_bytes": "7"}])
def test_a_manifest_with_values_of_wrong_types_counts_as_none(output: Path, wrong: dict[str, object]) -> None:
    path = manifest_path(output)
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    assert read_manifest(output) is None
    path.write_text("[" * 100_000)
    assert read_manifest(output) is None


@pytest.mark.parametrize("change", ["grow", "vanish", "touch"])
def test_an_input_that_changes_while_it_is_read_gives_no_output(tmp_path: Path, change: str) -> None:
    source = tmp_path / "source"
    source.write_text("abc")

    def build(temporary: Path) -> BuildResult:
        temporary.write_text("content")
        if change == "vanish":
            source.unlink()
        elif change == "grow":
            source.write_text("abcd")
        else:
            os.utime(source, ns=(0, 0))
        return BuildResult()

    with pytest.raises(DatasetFormatError, match="source changed while it was read"):
        produce(tmp_path / "x", [source], FileExistencePolicy.ERROR, lambda: IDENTITY, build)
    assert not [path for path in tmp_path.iterdir() if path.name != "source"]


def test_inputs_hashed_while_they_were_read_belong_to_the_identity(tmp_path: Path) -> None:
    def build(temporary: Path) -> BuildResult:
        temporary.write_text("content")
        return BuildResult(input_digests={"source": "xxh128:b"})

    bare = StageIdentity("stage", "1", {}, {})
    manifest = produce(tmp_path / "x", [], FileExistencePolicy.ERROR, lambda: bare, build)
    assert manifest is not None
    assert manifest.inputs == {"source": "xxh128:b"}
    assert manifest.fingerprint == StageIdentity("stage", "1", {}, {"source": "xxh128:b"}).fingerprint


def _never() -> StageIdentity:
    pytest.fail("the identity was asked although nothing may be built")
