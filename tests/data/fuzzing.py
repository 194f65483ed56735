"""Damaged `.pbin` and `.idx` files put through all that reads them.

Each must end in one of this package's errors for data files, or be read as the file says; never in a crash, a hang,
code of the file being run, or memory out of proportion.

Run: python -m tests.data.fuzzing NUM_CASES [SEED]
"""

import faulthandler
import os
import pickle
import random
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.jsonl import LargeFileLinesReader, read_index
from modalities_pipeline.data.merged_pbin import build_merged_pbin
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.repaired_pbin import build_repaired_pbin
from modalities_pipeline.data.shuffled_chunks import build_shuffled_chunk
from modalities_pipeline.data.shuffled_pbin import build_shuffled_pbin
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError
from tests.data.damaged_packs import LINES, DamagedFiles, Pairs

_TIMEOUT_IN_S = 60
_MAX_GROWTH_IN_BYTES = 300 << 20
_SHARE_FOR_STAGES = 0.2  # they wait for the disk
_OVERRIDE = FileExistencePolicy.OVERRIDE


class Reader:
    """Reads damaged files in all ways, and tells wrong readings from right ones."""

    def __init__(self, seed: int, folder: Path) -> None:
        """`folder` is for the files of one case at a time."""
        self._random = random.Random(seed)
        self._folder = folder

    def read_pack(self, content: bytes) -> str:
        """Read one packed file in every way; in a word, how it ended."""
        path = self._folder / "x.pbin"
        path.write_bytes(content)
        try:
            with PackedFile(path) as file:
                assert file.num_tokens == len(file.tokens)
                pairs = list(file.index)
                _check_pairs(pairs, content[12 + file.data_length_in_bytes :])
                _read_documents(file, pairs, content)
                file.check_index()
        except DatasetFormatError as error:
            _check_message(error, path)
            if self._random.random() < _SHARE_FOR_STAGES:
                self._stages_refuse(path)
            return "pack refused"
        if self._random.random() < _SHARE_FOR_STAGES:
            self._stages_agree(path)
        return "pack read"

    def _stages_refuse(self, path: Path) -> None:
        """What cannot be read is not shuffled, cut or merged either; repairing it gives a sound file or fails."""
        output = self._folder / "y.pbin"
        stage = self._random.choice([build_shuffled_pbin, build_merged, build_chunk])
        try:
            stage(path, output, file_existence_policy=_OVERRIDE)
        except UserError:
            assert not output.exists(), "a failed stage left an output"
        else:
            raise AssertionError(f"{stage.__name__} took a damaged file")
        try:
            build_repaired_pbin(path, output, _OVERRIDE)
        except UserError:
            return
        with PackedFile(output) as file:
            file.check_index()
        output.unlink()

    def _stages_agree(self, path: Path) -> None:
        output = self._folder / "y.pbin"
        build_merged(path, output, file_existence_policy=_OVERRIDE)
        with PackedFile(path) as before, PackedFile(output) as after:
            assert list(before.index) == list(after.index)
            assert bytes(before.data) == bytes(after.data)
        output.unlink()

    def read_lines(self, content: bytes) -> str:
        """Read one line index; in a word, how it ended."""
        source, index = self._folder / "x.jsonl", self._folder / "x.idx"
        source.write_bytes(LINES)
        index.write_bytes(content)
        try:
            _check_pairs(list(read_index(index)), content)
            with LargeFileLinesReader(source, index, encoding=None) as reader:
                for position, (offset, length) in enumerate(reader.index):
                    assert reader[position] == LINES[offset : offset + length]
                    assert 0 <= offset <= offset + length <= len(LINES)
        except (DatasetFormatError, DatasetNotFoundError) as error:
            _check_message(error, index)
            return "index refused"
        return "index read"


def build_merged(path: Path, output: Path, **options: Any) -> None:
    """Merge one file."""
    build_merged_pbin([path], output, **options)


def build_chunk(path: Path, output: Path, **options: Any) -> None:
    """Take a whole file as a chunk."""
    build_shuffled_chunk([path], output, 0, 1, **options)


def _check_message(error: UserError, path: Path) -> None:
    assert str(path) in str(error), "the message does not name the file"


def _check_pairs(pairs: Pairs, content: bytes) -> None:
    """What was accepted holds no dangerous opcodes, so Python's own unpickler may tell what it is."""
    expected = pickle.loads(content)
    assert pairs in (expected, [(offset - 12, length) for offset, length in expected])


def _read_documents(file: PackedFile, pairs: Pairs, content: bytes) -> None:
    """Each document is what its entry says, or refused."""
    data = content[12 : 12 + file.data_length_in_bytes]
    for position, (offset, length) in enumerate(pairs):
        is_sound = 0 <= offset <= offset + max(length, 0) <= len(data) and length >= 0
        is_sound &= not offset % file.token_size_in_bytes and not length % file.token_size_in_bytes
        try:
            document = bytes(file.document_bytes(position))
            tokens = file.document(position)
        except DatasetFormatError:
            assert not is_sound
        else:
            assert is_sound
            assert document == data[offset : offset + length] == tokens.tobytes()


def run(num_cases: int, seed: int) -> Counter[str]:
    """Try so many damaged files of each kind; how often each way to end occurred.

    Raises:
        AssertionError: a file was read wrongly, its code was run, or memory grew; a note has the bytes of the file. A
            case that takes a minute ends the process with a traceback.
    """
    outcomes: Counter[str] = Counter()
    before, home = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            maker, reader = DamagedFiles(seed), Reader(seed, Path(folder))
            for _ in range(num_cases):
                for content, read in (
                    (maker.pack(), reader.read_pack),
                    (maker.line_index(), reader.read_lines),
                ):
                    faulthandler.dump_traceback_later(_TIMEOUT_IN_S, exit=True)
                    try:
                        outcomes[read(content)] += 1
                        assert not (Path(folder) / "made").exists(), "code from the file was run"
                        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
                        assert growth < _MAX_GROWTH_IN_BYTES, f"memory grew by {growth} bytes"
                    except BaseException as error:
                        error.add_note(f"seed {seed}, file: {content!r}")
                        raise
        finally:
            faulthandler.cancel_dump_traceback_later()
            os.chdir(home)
    return outcomes


if __name__ == "__main__":
    print(run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
