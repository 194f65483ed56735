"""Checks that a stage's output is right, and the same whoever made it.

Files are read here as Modalities reads them (header, data, pickled list), not with this package's reader.
"""

import mmap
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

Index = list[tuple[int, int]]

_HEADER = struct.Struct("<QI")
_BLOCK_IN_BYTES = 64 << 20


class WrongOutputError(AssertionError):
    """Two outputs that must be equal are not, or an output has the wrong documents."""


def read_idx(path: Path) -> Index:
    """The (offset, length) pairs of a raw index."""
    return pickle.loads(path.read_bytes())  # made by this benchmark


def read_pbin_index(path: Path) -> tuple[int, Index]:
    """Length of the data section in bytes, and the (offset, length) pairs, of a packed file."""
    with open(path, "rb") as file:
        data_length, _ = _HEADER.unpack(file.read(_HEADER.size))
        file.seek(_HEADER.size + data_length)
        return data_length, pickle.loads(file.read())  # made by this benchmark


def require_same_idx(ours: Path, peers: Path) -> None:
    """Raise `WrongOutputError` unless two raw indexes have the same entries."""
    if read_idx(ours) != read_idx(peers):
        raise WrongOutputError(f"{ours} and {peers} have other entries.")


def require_same_pbin(ours: Path, peers: Path, right_index: Index | None = None) -> None:
    """Raise `WrongOutputError` unless header and data are equal byte for byte, and the indexes have the same entries.

    With `right_index` our index must be that one, whatever the peer's is.
    """
    data_length, our_index = read_pbin_index(ours)
    _, their_index = read_pbin_index(peers)
    if our_index != (their_index if right_index is None else right_index):
        raise WrongOutputError(f"{ours} and {peers} have other indexes.")
    _require_same_bytes(ours, peers, _HEADER.size + data_length)


def require_same_bytes(ours: Path, peers: Path) -> None:
    """Raise `WrongOutputError` unless two files are equal."""
    if ours.stat().st_size != peers.stat().st_size:
        raise WrongOutputError(f"{ours} and {peers} have other sizes.")
    _require_same_bytes(ours, peers, ours.stat().st_size)


def _require_same_bytes(ours: Path, peers: Path, end: int) -> None:
    with _mapped(ours) as one, _mapped(peers) as other:
        for start in range(0, end, _BLOCK_IN_BYTES):
            stop = min(start + _BLOCK_IN_BYTES, end)
            if one[start:stop] != other[start:stop]:
                raise WrongOutputError(f"{ours} and {peers} have other bytes between {start} and {stop}.")


def require_lines(path: Path, num_lines: int) -> None:
    """Raise `WrongOutputError` unless a file has so many lines, each ended by LF."""
    found, last = 0, b"\n"
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_IN_BYTES):
            found += block.count(b"\n")
            last = block[-1:]
    if found != num_lines or last != b"\n":
        raise WrongOutputError(f"{path} has {found} ended lines, not {num_lines}.")


def merged_index(sources: Sequence[Path]) -> Index:
    """The right index of files joined in this order."""
    joined: Index = []
    start = 0
    for source in sources:
        data_length, index = read_pbin_index(source)
        joined += [(start + offset, length) for offset, length in index]
        start += data_length
    return joined


def require_documents(path: Path, num_documents: int) -> None:
    """Raise `WrongOutputError` unless a packed file has so many documents, back to back, that fill its data section."""
    data_length, index = read_pbin_index(path)
    position = 0
    for offset, length in index:
        if offset != position:
            raise WrongOutputError(f"{path}: a document begins at byte {offset}, the one before ends at {position}.")
        position += length
    if (len(index), position) != (num_documents, data_length):
        raise WrongOutputError(
            f"{path} has {len(index)} documents in {position} of {data_length} bytes, not {num_documents} documents."
        )


def _mapped(path: Path) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
