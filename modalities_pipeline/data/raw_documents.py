"""Stage raw_documents: a small English corpus that every Python installation carries, its own documentation.

One document is one help topic (`pydoc_data.topics`) or one docstring of a standard library module, class or function.
The docstrings are taken from the sources, so no module is imported.
"""

import ast
import dataclasses
import hashlib
import importlib
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import UserError

STAGE = "raw_documents"
CODE_VERSION = "1"

TRAIN_FILE_NAME = "train.jsonl"
VALIDATION_FILE_NAME = "validation.jsonl"

_MIN_LENGTH_IN_CHARACTERS = 80
_VALIDATION_SHARE = 20  # one document of so many is for validation
_SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages", "__pycache__", "_bundled"}
)
_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True)
class Document:
    """A text and where it comes from, for example `asyncio/runners.py:Runner.run`."""

    text: str
    source: str


def identity() -> StageIdentity:
    """Identity of the corpus; another Python version has another documentation."""
    settings = {"min_length_in_characters": _MIN_LENGTH_IN_CHARACTERS, "validation_share": _VALIDATION_SHARE}
    return StageIdentity(STAGE, CODE_VERSION, settings, {"python": platform.python_version()})


def build_raw_documents(
    output_dir: Path, file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR
) -> Manifest | None:
    """Write `train.jsonl` and `validation.jsonl` with one {"text", "source"} object per line into a directory.

    Which of the two a document belongs to is decided by a hash of its text.

    Raises:
        UserError: this Python installation has no documentation.
        OutputExistsError: the directory exists and the policy is ERROR.
    """
    return produce(output_dir, [], file_existence_policy, identity, _build)


def stdlib_documents(stdlib_dir: Path) -> Iterator[Document]:
    """All docstrings of the modules below a folder, cleaned of indentation, in order of path and position."""
    for folder, subfolders, names in os.walk(stdlib_dir):
        subfolders[:] = sorted(set(subfolders) - _SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                yield from _docstrings(path, path.relative_to(stdlib_dir).as_posix())


def _docstrings(path: Path, name: str) -> Iterator[Document]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's sources
            module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates and samples of broken code
        return
    documentation = ast.get_docstring(module)
    if documentation:
        yield Document(documentation, name)
    yield from _nested_docstrings(module, f"{name}:")


def _nested_docstrings(parent: ast.AST, prefix: str) -> Iterator[Document]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, _DOCUMENTED):
            documentation = ast.get_docstring(node)
            if documentation:
                yield Document(documentation, prefix + node.name)
            yield from _nested_docstrings(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _nested_docstrings(node, prefix)


def _help_topics() -> Iterator[Document]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise UserError(
            "This Python installation has no pydoc_data, from which the default corpus is made. Install the complete "
            "standard library, or name files of your own in the corpora."
        ) from error
    for name in sorted(topics):
        yield Document(topics[name], f"topics/{name}")


def _build(output_dir: Path) -> BuildResult:
    output_dir.mkdir()
    stdlib_dir = Path(sysconfig.get_path("stdlib"))
    documents, num_duplicates = _distinct([*_help_topics(), *stdlib_documents(stdlib_dir)])
    counts: dict[str, int | float] = {"num_duplicates": num_duplicates}
    for split, file_name in (("train", TRAIN_FILE_NAME), ("validation", VALIDATION_FILE_NAME)):
        chosen = [document for document in documents if _is_validation(document) == (split == "validation")]
        if not chosen:
            raise UserError(f"{stdlib_dir} holds too few docstrings for a {split} corpus. Name files of your own.")
        content = b"".join(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE) for document in chosen)
        (output_dir / file_name).write_bytes(content)
        counts |= {f"num_{split}_documents": len(chosen), f"num_{split}_bytes": len(content)}
    return BuildResult(counts, {"files": [TRAIN_FILE_NAME, VALIDATION_FILE_NAME]})


def _distinct(documents: Iterable[Document]) -> tuple[list[Document], int]:
    """Documents that are long enough and new, and the number of repeated ones."""
    by_text: dict[str, Document] = {}
    num_duplicates = 0
    for document in documents:
        text = document.text.strip()
        if len(text) < _MIN_LENGTH_IN_CHARACTERS or not _is_encodable(text):
            continue
        num_duplicates += text in by_text
        by_text.setdefault(text, Document(text, document.source))
    return list(by_text.values()), num_duplicates


def _is_encodable(text: str) -> bool:
    """False for lone surrogates, which a docstring can hold but a UTF-8 file cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_validation(document: Document) -> bool:
    digest = hashlib.sha256(document.text.encode()).digest()
    return int.from_bytes(digest[:8], "big") % _VALIDATION_SHARE == 0
