"""The default corpus."""

import asyncio
import json
from pathlib import Path

import pytest

from modalities_pipeline.data import raw_documents
from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.data.raw_documents import build_raw_documents, identity, stdlib_documents


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """The corpus of the Python that runs the tests."""
    path = tmp_path_factory.mktemp("corpus") / "raw_documents"
    manifest = build_raw_documents(path)
    assert manifest is not None
    return path, manifest


def _texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text("utf-8").splitlines()]


def test_the_corpus_is_real_english_of_a_few_megabytes_without_repetition(corpus: tuple[Path, Manifest]) -> None:
    path, manifest = corpus
    train, validation = _texts(path / "train.jsonl"), _texts(path / "validation.jsonl")
    assert len(set(train + validation)) == len(train) + len(validation)
    assert manifest.counts["num_train_documents"] == len(train) > 1000
    assert manifest.counts["num_validation_documents"] == len(validation)
    assert 0.02 < len(validation) / len(train) < 0.1
    assert 1_000_000 < manifest.counts["num_train_bytes"] == (path / "train.jsonl").stat().st_size
    assert any(text.startswith('The "assert" statement') for text in train + validation)
    assert any("event loop" in text for text in train)


def test_building_it_again_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a part of the standard library, to be quick."""
    monkeypatch.setattr(raw_documents.sysconfig, "get_path", lambda _: Path(asyncio.__file__).parent)
    first, second = (build_raw_documents(tmp_path / "x", FileExistencePolicy.OVERRIDE) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.digest == second.digest
    assert first.fingerprint == second.fingerprint == identity().fingerprint


def test_docstrings_are_found_wherever_they_stand_and_tests_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "t.py").write_text('"""Of a test."""\n')
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "a.py").write_text(
        '"""Of the module."""\n'
        "class C:\n"
        '    """Of the class."""\n'
        "    def f(self):\n"
        '        """Of the method.\n\n        Indented.\n        """\n'
        "try:\n"
        "    async def g():\n"
        '        """Of the function."""\n'
        "except ImportError:\n"
        '    x = "\\d"\n'
    )
    assert [(document.source, document.text) for document in stdlib_documents(tmp_path)] == [
        ("a.py", "Of the module."),
        ("a.py:C", "Of the class."),
        ("a.py:C.f", "Of the method.\n\nIndented."),
        ("a.py:g", "Of the function."),
    ]


def test_a_python_without_documentation_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(raw_documents.importlib, "import_module", missing)
    with pytest.raises(ValueError, match="pydoc_data"):
        build_raw_documents(tmp_path / "x")
    assert not (tmp_path / "x").exists()
