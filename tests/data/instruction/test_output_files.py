"""The set of files of instruction data: refused as a whole, withdrawn as a whole."""

from pathlib import Path

import pytest

from modalities_pipeline.data.instruction.output_files import check_output_files, withdraw
from modalities_pipeline.data.manifest import manifest_path
from modalities_pipeline.exceptions import OutputNotWritableError, UserError


def test_names_that_cannot_all_be_written_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    check_output_files([first, second], [tmp_path / "c"])
    for outputs, inputs in (
        ([first, second, first], []),
        ([first, manifest_path(first)], []),
        ([first, second], [second]),
        ([first, second], [manifest_path(second)]),
        ([first, second], [tmp_path / ".b.lock"]),
    ):
        with pytest.raises(UserError, match=r"Two outputs|also an input"):
            check_output_files(outputs, inputs)
    second.mkdir()
    with pytest.raises(OutputNotWritableError, match="folder"):
        check_output_files([first, second], [])
    with pytest.raises(OutputNotWritableError, match="too long"):
        check_output_files([tmp_path / ("x" * 250)], [])


def test_outputs_are_withdrawn_with_their_records(tmp_path: Path) -> None:
    for name in ("a", "a.manifest.json", "b", "other"):
        (tmp_path / name).touch()
    withdraw([tmp_path / "a", tmp_path / "b", tmp_path / "missing"])
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
