"""A corpus of real texts for the benchmarks: what is installed with Python, as JSON lines of about 3 KB.

Help topics of pydoc, docstrings of the standard library, and sources and text files of the standard library and of the
installed packages. The same installation gives the same bytes.
"""

import ast
import dataclasses
import itertools
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import orjson

from modalities_pipeline.data.files import digest_file

_SUFFIXES = frozenset({".py", ".pyi", ".txt", ".rst", ".md", ".h", ".hpp"})
# Lengths of documents vary as on the web: log-normal, with a mean of about 3,000 characters.
_MEDIAN_LENGTH_LOG, _LENGTH_SIGMA, _MAX_LENGTH = 7.8, 0.7, 50_000
_MIN_LENGTH = 64


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A finished corpus.

    Attributes:
        path: the JSON-lines file.
        num_documents: its lines.
        size_in_bytes: its size.
        num_passes: how often the installed texts were gone through; each pass cuts them at other places.
        digest: of the file.
    """

    path: Path
    num_documents: int
    size_in_bytes: int
    num_passes: int
    digest: str


def write_corpus(path: Path, size_in_bytes: int) -> Corpus:
    """Write whole documents until the size is reached."""
    num_documents = written = num_passes = 0
    with open(path, "wb") as file:
        for num_passes in itertools.count(1):
            for line in _lines(seed=num_passes):
                file.write(line)
                written += len(line)
                num_documents += 1
                if written >= size_in_bytes:
                    break
            if written >= size_in_bytes:
                break
    return Corpus(path, num_documents, written, num_passes, digest_file(path))


def _lines(seed: int) -> Iterator[bytes]:
    """All installed texts once, in an order and cut at places that depend on the seed."""
    generator = random.Random(seed)
    sources = _source_files()
    generator.shuffle(sources)
    for name, text in itertools.chain(topics.items(), _docstrings(), _readable(sources)):
        for piece in _pieces(text, generator):
            yield orjson.dumps({"text": piece, "source": name}, option=orjson.OPT_APPEND_NEWLINE)


def _source_files() -> list[tuple[Path, str]]:
    """Every text file of the standard library and of the packages, with its name below their folder, sorted."""
    found: dict[str, Path] = {}
    for scheme in ("stdlib", "purelib"):
        root = Path(sysconfig.get_path(scheme))
        for path in root.rglob("*"):
            name = path.relative_to(root).as_posix()
            of_packages = scheme == "stdlib" and name.startswith("site-packages/")
            if path.suffix in _SUFFIXES and not of_packages and path.is_file():
                found[f"{scheme}/{name}"] = path
    return [(found[name], name) for name in sorted(found)]


def _readable(sources: list[tuple[Path, str]]) -> Iterator[tuple[str, str]]:
    for path, name in sources:
        try:
            yield name, path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # some tests of the standard library are in other encodings on purpose


def _docstrings() -> Iterator[tuple[str, str]]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.glob("*.py")):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, documented) and (docstring := ast.get_docstring(node)):
                yield f"docstring/{path.name}/{getattr(node, 'name', '')}", docstring


def _pieces(text: str, generator: random.Random) -> Iterator[str]:
    """A text cut at line ends into pieces of random lengths; pieces too short to be a document are left out."""
    lines, length, target = [], 0, _random_length(generator)
    for line in text.splitlines(keepends=True):
        lines.append(line)
        length += len(line)
        if length >= target:
            yield "".join(lines)
            lines, length, target = [], 0, _random_length(generator)
    if length >= _MIN_LENGTH:
        yield "".join(lines)


def _random_length(generator: random.Random) -> float:
    return min(max(generator.lognormvariate(_MEDIAN_LENGTH_LOG, _LENGTH_SIGMA), _MIN_LENGTH), _MAX_LENGTH)
