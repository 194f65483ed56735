"""Loading Hugging Face tokenizers."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.exceptions import DatasetNotFoundError
from modalities_pipeline.tokenization.hf_loading import load_hf_tokenizer
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer


def _with_config(source: Path, folder: Path, **changes: Any) -> Path:
    shutil.copytree(source, folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")
    return folder


@pytest.mark.parametrize(
    "class_name",
    ["PreTrainedTokenizerFast", "TokenizersBackend", "GPT2Tokenizer", "GPT2TokenizerFast", "BertTokenizer", None],
)
def test_it_is_what_auto_tokenizer_gives(class_name: str | None, tiny_bpe_dir: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = _with_config(tiny_bpe_dir, tmp_path / "x", tokenizer_class=class_name)
    ours, theirs = load_hf_tokenizer(str(folder)), AutoTokenizer.from_pretrained(str(folder))
    assert type(ours) is type(theirs)
    assert ours.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert repr(ours) == repr(theirs)


def test_a_plain_tokenizer_is_loaded_without_torch(tiny_bpe_dir: Path) -> None:
    code = (
        "import sys; from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer as T;"
        f"print(T({str(tiny_bpe_dir)!r}).tokenize('a'), 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == f"{PreTrainedHFTokenizer(str(tiny_bpe_dir)).tokenize('a')} False"


def test_a_relative_path_is_the_same_folder(
    tiny_bpe_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_bpe_dir, tmp_path / "a" / "b")
    monkeypatch.chdir(tmp_path)
    relative = PreTrainedHFTokenizer("a/b")
    assert relative.fingerprint() == PreTrainedHFTokenizer(str(tiny_bpe_dir)).fingerprint()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", '{"tokenizer_class": ["x"]}'),
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"model": 3}'),
    ],
)
def test_damaged_files_are_named(name: str, content: str, tiny_bpe_dir: Path, tmp_path: Path) -> None:
    folder = _with_config(tiny_bpe_dir, tmp_path / "x")
    (folder / name).write_text(content)
    with pytest.raises(DatasetNotFoundError, match=str(folder)):
        load_hf_tokenizer(str(folder))
