"""Loading Hugging Face tokenizers."""

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.exceptions import DatasetNotFoundError
from modalities_pipeline.tokenization import hf_loading
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


@pytest.mark.parametrize("name", ["/no/where", "./no", "../no", "~/no", "a/b/c", "  ", "a/", "a b/c", "here/no"])
def test_what_can_only_be_a_path_is_not_looked_for_on_the_hub(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hf_loading, "hub_is_reachable", lambda: pytest.fail("the hub was asked"))
    with pytest.raises(DatasetNotFoundError, match=r"There is no folder '.*no name of the Hugging Face hub"):
        load_hf_tokenizer(name)


@pytest.mark.parametrize("name", ["gpt2", "owner/model-1.0", "o_w.n-er/m"])
def test_a_hub_that_does_not_answer_is_asked_once_and_told_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def no_answer() -> None:
        asked.append(1)
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.utils.get_session", no_answer)
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(DatasetNotFoundError, match=f"from '{name}' and the Hugging Face hub does not answer"),
    ):
        load_hf_tokenizer(name)
    assert asked == [1]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("modalities")] == [
        f"There is no folder '{name}' here; looking for it among earlier downloads, as the hub does not answer."
    ]


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
