"""Writing files so that they are complete or not there."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from modalities_pipeline.data.files import (
    FileExistencePolicy,
    atomic_path,
    digest_directory,
    digest_file,
    digest_strings,
    enforce_file_existence_policy,
    refuse_output_among_inputs,
    size_in_bytes,
)
from modalities_pipeline.data.locks import output_lock
from modalities_pipeline.exceptions import (
    DatasetNotFoundError,
    OutputExistsError,
    OutputLockedError,
    OutputNotWritableError,
    UserError,
)


def test_the_policy_says_whether_to_stop_and_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for policy in FileExistencePolicy:
        assert enforce_file_existence_policy(path, policy) is False
    path.write_text("old")
    assert enforce_file_existence_policy(path, FileExistencePolicy.SKIP) is True
    assert enforce_file_existence_policy(path, FileExistencePolicy.OVERRIDE) is False
    with pytest.raises(OutputExistsError, match="override"):
        enforce_file_existence_policy(path, FileExistencePolicy.ERROR)
    assert path.read_text() == "old"


@pytest.mark.parametrize("policy", ["skip", None, 1])
def test_only_a_policy_is_accepted_as_a_policy(tmp_path: Path, policy: object) -> None:
    with pytest.raises(ValueError, match="error, override, skip"):
        enforce_file_existence_policy(tmp_path / "x", policy)  # type: ignore[arg-type]


def test_an_output_among_the_inputs_is_found_in_every_spelling(tmp_path: Path) -> None:
    """B008."""
    source = tmp_path / "x"
    source.write_text("old")
    (tmp_path / "d").mkdir()
    (tmp_path / "soft").symlink_to(source)
    (tmp_path / "hard").hardlink_to(source)
    for output in (source, tmp_path / "d" / ".." / "x", tmp_path / "soft", tmp_path / "hard"):
        with pytest.raises(UserError, match="also an input"):
            refuse_output_among_inputs(output, [tmp_path / "other", source])
    refuse_output_among_inputs(tmp_path / "y", [source])


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x"
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent
    assert path.read_text() == "half"
    assert [entry.name for entry in path.parent.iterdir()] == ["x"]


def _write_half_and_fail(path: Path) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt


def test_a_failure_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        _write_half_and_fail(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_a_directory_replaces_another_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in ("old", "new"):
        with atomic_path(path) as temporary:
            (temporary / "sub").mkdir(parents=True)
            (temporary / "sub" / content).write_text(content)
    assert [file.name for file in path.rglob("*") if file.is_file()] == ["new"]
    with pytest.raises(KeyboardInterrupt):
        _write_half_and_fail(path)
    assert [file.name for file in path.rglob("*") if file.is_file()] == ["new"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


_BUILD_AND_HANG = """
import sys, time
from pathlib import Path
from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import StageIdentity
from modalities_pipeline.data.production import produce

def build(temporary):
    temporary.write_text("half")
    print("half written", flush=True)
    time.sleep(60)

identity = StageIdentity("stage", "2", {}, {})
produce(Path(sys.argv[1]), [], FileExistencePolicy.OVERRIDE, lambda: identity, build)
"""


@pytest.fixture
def hanging_build(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of replacing `x`, holding its lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", _BUILD_AND_HANG, str(tmp_path / "x")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half written\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_killed_build_leaves_the_old_output_and_a_free_lock(
    tmp_path: Path, hanging_build: subprocess.Popen[str]
) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    hanging_build.send_signal(signal.SIGKILL)
    hanging_build.wait()
    assert path.read_text() == "old"
    assert len(list(tmp_path.glob(".x.*.tmp"))) == 1
    with output_lock(path, wait=False) as token, atomic_path(path, token) as temporary:
        assert not list(tmp_path.glob(".x.*.tmp")), "what the killed build left behind is still there"
        temporary.write_text("new")
    assert path.read_text() == "new"


def test_a_second_run_on_one_output_is_told_who_holds_it(tmp_path: Path, hanging_build: subprocess.Popen[str]) -> None:
    """B089."""
    with (
        pytest.raises(OutputLockedError, match=f"process {hanging_build.pid}"),
        output_lock(tmp_path / "x", wait=False),
    ):
        pytest.fail("the lock was given twice")


def test_a_waiting_run_goes_on_when_the_lock_is_free(tmp_path: Path) -> None:
    """B089."""
    order = []

    def second() -> None:
        with output_lock(tmp_path / "x"):
            order.append("second")

    with output_lock(tmp_path / "x"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_digests_depend_on_names_and_contents_only(tmp_path: Path) -> None:
    for folder, order in (("a", "xy"), ("b", "yx")):
        for name in order:
            (tmp_path / folder / "sub").mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "sub" / name).write_text(name)
    os.utime(tmp_path / "a" / "sub" / "x", (0, 0))
    assert digest_directory(tmp_path / "a") == digest_directory(tmp_path / "b")
    (tmp_path / "b" / "sub" / "x").rename(tmp_path / "b" / "x")
    assert digest_directory(tmp_path / "a") != digest_directory(tmp_path / "b")
    assert size_in_bytes(tmp_path / "a") == size_in_bytes(tmp_path / "b") == 2


def test_digests_are_those_of_xxh3(tmp_path: Path) -> None:
    """The 128-bit digest of nothing, and of more than one block, as the reference implementation gives them."""
    (tmp_path / "empty").touch()
    assert digest_file(tmp_path / "empty") == "xxh128:99aa06d3014798d86001c324468d497f"
    content = bytes(range(256)) * 4096
    (tmp_path / "large").write_bytes(content)
    assert digest_file(tmp_path / "large") == f"xxh128:{xxhash.xxh3_128(content).hexdigest()}"


def test_lists_of_strings_do_not_collide_by_concatenation() -> None:
    assert digest_strings(["ab", "c"]) != digest_strings(["a", "bc"])
    assert digest_strings([]) != digest_strings([""])


def test_what_the_system_refuses_is_one_message_with_the_outputs_path(tmp_path: Path) -> None:
    def fill_the_disk() -> None:
        raise OSError(errno.ENOSPC, "whatever")

    words = "out cannot be written: No space left on device"
    with pytest.raises(OutputNotWritableError, match=words) as caught, atomic_path(tmp_path / "out"):
        fill_the_disk()
    assert isinstance(caught.value.__cause__, OSError)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named_by_the_lock_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputNotWritableError, match="out cannot be written: "), output_lock(tmp_path / "file" / "out"):
        pass


def test_errors_with_a_meaning_of_their_own_pass_unchanged(tmp_path: Path) -> None:
    error = DatasetNotFoundError("an input is missing")
    with pytest.raises(DatasetNotFoundError) as caught, atomic_path(tmp_path / "out"):
        raise error
    assert caught.value is error


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".x.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OutputNotWritableError), output_lock(tmp_path / "x"):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_lock_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".x.lock")
    with pytest.raises(UserError, match="is no file"), output_lock(tmp_path / "x"):
        pass


def test_no_lock_stays_when_its_holder_is_done(tmp_path: Path) -> None:
    """And who waited for it does not hold the removed one."""
    inside = []

    def hold(number: int) -> None:
        with output_lock(tmp_path / "x"):
            inside.append(number)
            assert len(inside) == 1
            time.sleep(0.01)
            inside.remove(number)

    threads = [threading.Thread(target=hold, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not inside
    assert not list(tmp_path.iterdir())


def test_an_error_about_another_file_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, atomic_path(tmp_path / "out"):
        open(tmp_path / "labels.txt").close()
    assert not isinstance(caught.value, OutputNotWritableError)
    with pytest.raises(OutputNotWritableError), atomic_path(tmp_path / "out") as temporary:
        open(temporary / "missing" / "part", "w").close()
