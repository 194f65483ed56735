"""Training a tokenizer, and keeping a given one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from modalities_pipeline.data.files import FileExistencePolicy, digest_file
from modalities_pipeline.data.freshness import Action, Policy, decide
from modalities_pipeline.data.manifest import Manifest
from modalities_pipeline.exceptions import ConfigError, DatasetFormatError, DatasetNotFoundError, UserError
from modalities_pipeline.tokenization import saved_tokenizer
from modalities_pipeline.tokenization.saved_tokenizer import build_saved_tokenizer, build_tokenizer
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer, PreTrainedSPTokenizer
from modalities_pipeline.tokenization.training import identity, train_tokenizer

EOD = "<|endoftext|>"
WORDS = ["return", "the", "list", "of", "all", "names", "function", "a", "value", "class", "Grüße", "日本語"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of a dozen words, a blank line and a line without text."""
    path = tmp_path_factory.mktemp("corpus") / "train.jsonl"
    texts = [" ".join(WORDS[(number * step) % len(WORDS)] for step in range(20)) for number in range(50)]
    lines = [json.dumps({"text": text}) for text in texts]
    path.write_text("\n".join([*lines, "", '{"no": "text"}']) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """Folder and manifest of a tokenizer with 300 tokens."""
    folder = tmp_path_factory.mktemp("trained") / "tokenizer"
    manifest = train_tokenizer([corpus], ".text", 300, EOD, folder, FileExistencePolicy.ERROR)
    assert manifest is not None
    return folder, manifest


def test_the_vocabulary_is_as_large_as_asked_for_and_its_end_token_is_special(trained: tuple[Path, Manifest]) -> None:
    folder, manifest = trained
    tokenizer = PreTrainedHFTokenizer(str(folder))
    assert tokenizer.vocab_size == tokenizer.num_token_ids == 300
    assert tokenizer.is_special_token_id(tokenizer.get_token_id(EOD))
    assert tokenizer.special_tokens == [EOD]
    assert manifest.counts == {
        "vocab_size": 300,
        "num_documents": 50,
        "num_skipped": 1,
        "num_bytes": manifest.counts["num_bytes"],
    }
    assert manifest.details == {
        "tokenizer_fingerprint": tokenizer.fingerprint(),
        "vocab_size": 300,
        "num_token_ids": 300,
        "eod_token": EOD,
        "eod_token_id": 0,
    }


@pytest.mark.parametrize(
    "text", ["", "return the list", "  two  spaces\tand\r\nlines ", "unseen: ñ 😀 \x00", "a . b , c"]
)
def test_every_text_comes_back_exactly(trained: tuple[Path, Manifest], text: str) -> None:
    tokenizer = PreTrainedHFTokenizer(str(trained[0]))
    assert tokenizer.decode(tokenizer.tokenize(text)) == text


def test_frequent_words_are_learned_and_the_end_token_is_one_id(trained: tuple[Path, Manifest]) -> None:
    tokenizer = PreTrainedHFTokenizer(str(trained[0]))
    assert len(tokenizer.tokenize("return the list of")) < len("return the list of") / 2
    assert tokenizer.tokenize(f"a{EOD}")[-1:] == [0]


def test_plain_transformers_loads_the_folder_and_cuts_nothing(trained: tuple[Path, Manifest]) -> None:
    """B019."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(trained[0])
    assert tokenizer.eos_token == EOD
    assert len(tokenizer("é" * 5000, truncation=True)["input_ids"]) >= 5000


def test_another_process_trains_the_same_tokenizer(
    trained: tuple[Path, Manifest], corpus: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path; from modalities_pipeline.tokenization.training import train_tokenizer;"
        f"train_tokenizer([Path(sys.argv[1])], '.text', 300, {EOD!r}, Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, corpus, tmp_path / "tokenizer"], check=True, timeout=120)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "tokenizer" / name).read_bytes() == (trained[0] / name).read_bytes()


def test_the_manifest_has_the_published_identity(trained: tuple[Path, Manifest], corpus: Path) -> None:
    published = identity({"train.jsonl": digest_file(corpus)}, ".text", 300, EOD)
    assert trained[1].fingerprint == published.fingerprint
    assert decide(published, trained[0], Policy.AUTO).action is Action.CACHE_HIT


def test_too_little_text_is_reported_with_figures(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetFormatError, match=r"50 documents .* of 5000 tokens.*1 lines had no text"):
        train_tokenizer([corpus], ".text", 5000, EOD, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_impossible_settings_are_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="256 is too small"):
        train_tokenizer([corpus], ".text", 256, EOD, tmp_path / "x")
    with pytest.raises(UserError, match="eod_token"):
        train_tokenizer([corpus], ".text", 300, "", tmp_path / "x")
    with pytest.raises(ConfigError, match="jq_pattern"):
        train_tokenizer([corpus], ".text |", 300, EOD, tmp_path / "x")
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        train_tokenizer([tmp_path / "nowhere.jsonl"], ".text", 300, EOD, tmp_path / "x")


def _node(path: Path, **config: object) -> dict[str, object]:
    return {
        "component_key": "tokenizer",
        "variant_key": "pretrained_hf_tokenizer",
        "config": {"pretrained_model_name_or_path": str(path), **config},
    }


def test_a_given_tokenizer_is_kept_with_what_must_be_known_of_it(
    tmp_path: Path, tiny_wordlevel_dir: Path, tiny_sp_file: Path
) -> None:
    manifest = build_saved_tokenizer(_node(tiny_wordlevel_dir, truncation=True), "<eod>", tmp_path / "hf")
    assert manifest is not None
    cutting = build_tokenizer(_node(tiny_wordlevel_dir, truncation=True))
    assert manifest.details["tokenizer_fingerprint"] == cutting.fingerprint()
    assert (manifest.details["eod_token_id"], manifest.details["num_token_ids"]) == (1, 20)
    assert PreTrainedHFTokenizer(str(tmp_path / "hf")).tokenize("hello world") == [5, 6]

    sentencepiece = {
        "component_key": "tokenizer",
        "variant_key": "pretrained_sp_tokenizer",
        "config": {"tokenizer_model_file": str(tiny_sp_file)},
    }
    build_saved_tokenizer(sentencepiece, "</s>", tmp_path / "sp")
    assert PreTrainedSPTokenizer(str(tmp_path / "sp" / "tokenizer.model")).get_token_id("</s>") == 2


def test_a_given_tokenizer_without_the_end_token_is_refused(tmp_path: Path, tiny_wordlevel_dir: Path) -> None:
    """B017."""
    with pytest.raises(UserError, match=r"<\|end\|>.*<eod>"):
        build_saved_tokenizer(_node(tiny_wordlevel_dir), "<|end|>", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_identity_of_a_given_tokenizer_is_what_lies_there_not_where(
    tmp_path: Path, tiny_wordlevel_dir: Path
) -> None:
    """B022."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tiny_wordlevel_dir.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    original = saved_tokenizer.identity(_node(tiny_wordlevel_dir), "<eod>").fingerprint
    assert saved_tokenizer.identity(_node(copy), "<eod>").fingerprint == original
    assert saved_tokenizer.identity(_node(copy), "<e>").fingerprint != original
    assert saved_tokenizer.identity(_node(copy, truncation=True), "<eod>").fingerprint != original
    with open(copy / "tokenizer.json", "a") as file:
        file.write("\n")
    assert saved_tokenizer.identity(_node(copy), "<eod>").fingerprint != original


def test_a_component_that_is_no_tokenizer_is_refused() -> None:
    node = {
        "component_key": "loss",
        "variant_key": "clm_cross_entropy_loss",
        "config": {"target_key": "t", "prediction_key": "p"},
    }
    with pytest.raises(UserError, match="is not a tokenizer"):
        build_tokenizer(node)
