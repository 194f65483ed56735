"""Pretrained tokenizers."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from modalities_pipeline.exceptions import ConfigError, DatasetNotFoundError, UserError
from modalities_pipeline.tokenization.configs import PreTrainedHFTokenizerConfig
from modalities_pipeline.tokenization.saved_tokenizer import build_tokenizer
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer, PreTrainedSPTokenizer, TokenizerWrapper

EOD = {"tiny_wordlevel": "<eod>", "tiny_sp": "</s>"}


@pytest.fixture(params=["tiny_wordlevel", "tiny_sp"])
def tokenizer(request: pytest.FixtureRequest, tiny_wordlevel_dir: Path, tiny_sp_file: Path) -> TokenizerWrapper:
    """Each of the two kinds of tokenizers."""
    if request.param == "tiny_sp":
        return PreTrainedSPTokenizer(str(tiny_sp_file))
    return PreTrainedHFTokenizer(str(tiny_wordlevel_dir))


@pytest.fixture
def expectation(request: pytest.FixtureRequest, recorded: list[dict[str, Any]]) -> dict[str, Any]:
    """What Modalities gives for the tokenizer of the same test."""
    name = request.node.callspec.params["tokenizer"]
    return next(entry for entry in recorded if entry["tokenizer"] == name and "encode" in entry)


def test_ids_and_texts_are_those_of_modalities(tokenizer: TokenizerWrapper, expectation: dict[str, Any]) -> None:
    texts = [text for text, _, _ in expectation["encode"]]
    assert tokenizer.tokenize_batch(texts) == [ids for _, ids, _ in expectation["encode"]]
    for text, ids, decoded in expectation["encode"]:
        assert tokenizer.tokenize(text) == ids
        assert tokenizer.decode(ids) == decoded


def test_the_vocabulary_is_that_of_modalities(tokenizer: TokenizerWrapper, expectation: dict[str, Any]) -> None:
    assert tokenizer.vocab_size == tokenizer.num_token_ids == expectation["vocab_size"]
    eod = EOD[expectation["tokenizer"]]
    assert tokenizer.get_token_id(eod) == tokenizer.find_token_id(eod) == expectation["eod_id"]
    special_ids = [token_id for token_id in range(tokenizer.vocab_size) if tokenizer.is_special_token_id(token_id)]
    assert special_ids == [i for i in expectation["special_ids_below_300_or_50256"] if i < tokenizer.vocab_size]
    assert eod in tokenizer.special_tokens


def test_a_token_that_is_not_there_is_not_found(tokenizer: TokenizerWrapper, expectation: dict[str, Any]) -> None:
    assert tokenizer.find_token_id("no such token") is None
    if isinstance(expectation["unknown_token"], int):
        assert tokenizer.get_token_id("no such token") == expectation["unknown_token"]
    else:
        with pytest.raises(ValueError, match=r"no token 'no such token' \(special tokens: .*</s>"):
            tokenizer.get_token_id("no such token")


def test_an_empty_batch_is_an_empty_list(tokenizer: TokenizerWrapper) -> None:
    assert tokenizer.tokenize_batch([]) == []


def test_length_settings_do_what_they_do_in_modalities(
    recorded: list[dict[str, Any]], tiny_wordlevel_dir: Path
) -> None:
    cases = [entry for entry in recorded if "kwargs" in entry]
    assert len(cases) == 6
    for case in cases:
        if case.get("error") == "NotImplementedError":
            with pytest.raises(NotImplementedError, match=r"would add 1 tokens"):
                PreTrainedHFTokenizer(str(tiny_wordlevel_dir), **case["kwargs"])
            continue
        if "error" in case:  # there at the first text, here at once
            with pytest.raises(ConfigError, match="needs a token to pad with"):
                PreTrainedHFTokenizer(str(tiny_wordlevel_dir), **case["kwargs"])
            continue
        tokenizer = PreTrainedHFTokenizer(str(tiny_wordlevel_dir), **case["kwargs"])
        assert tokenizer.tokenize(case["text"]) == case["ids"]
        assert tokenizer.tokenize_batch([case["text"], "a"])[0] == case["ids"]


def test_padding_to_the_longest_text_does_not_depend_on_the_batch(tiny_wordlevel_dir: Path) -> None:
    tokenizer = PreTrainedHFTokenizer(str(tiny_wordlevel_dir), padding=True, special_tokens={"pad_token": "<pad>"})
    assert tokenizer.tokenize_batch(["a b c", "a"]) == [tokenizer.tokenize("a b c"), tokenizer.tokenize("a")]


def test_unknown_names_of_special_tokens_are_refused(tiny_wordlevel_dir: Path) -> None:
    with pytest.raises(ConfigError, match="padding_token"):
        PreTrainedHFTokenizer(str(tiny_wordlevel_dir), special_tokens={"padding_token": "<pad>"})


@pytest.mark.parametrize("change", [{"max_length": 2.0}, {"max_length": -1}, {"max_len": 3}])
def test_wrong_settings_are_refused(change: dict[str, Any]) -> None:
    """B077."""
    with pytest.raises(ValidationError):
        PreTrainedHFTokenizerConfig(pretrained_model_name_or_path="x", **change)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        PreTrainedHFTokenizer(str(tmp_path / "nowhere"))
    with pytest.raises(DatasetNotFoundError, match=r"nowhere\.model"):
        PreTrainedSPTokenizer(str(tmp_path / "nowhere.model"))
    (tmp_path / "bad.model").write_text("no model")
    with pytest.raises(UserError, match=r"bad\.model is no SentencePiece model"):
        PreTrainedSPTokenizer(str(tmp_path / "bad.model"))


@pytest.fixture
def changed_copy(tmp_path: Path, tiny_wordlevel_dir: Path) -> Callable[[str, Callable[[Any], None]], str]:
    """Function (file name, change of its JSON) -> fingerprint of a changed copy of the tokenizer folder."""

    def copy(name: str, change: Callable[[Any], None]) -> str:
        folder = tmp_path / "copy"
        shutil.copytree(tiny_wordlevel_dir, folder)
        content = json.loads((folder / name).read_text("utf-8"))
        change(content)
        (folder / name).write_text(json.dumps(content), "utf-8")
        return PreTrainedHFTokenizer(str(folder)).fingerprint()

    return copy


def test_the_fingerprint_does_not_depend_on_the_folder(
    tiny_wordlevel_dir: Path, changed_copy: Callable[..., str]
) -> None:
    assert (
        changed_copy("tokenizer.json", lambda _: None) == PreTrainedHFTokenizer(str(tiny_wordlevel_dir)).fingerprint()
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tokenizer.json", lambda content: content["model"]["vocab"].update({"hello": 6, "world": 5})),
        ("tokenizer.json", lambda content: content.update(normalizer={"type": "Lowercase"})),
        ("tokenizer_config.json", lambda content: content.update(eos_token="<e>")),
    ],
)
def test_the_fingerprint_changes_with_vocabulary_rules_and_special_tokens(
    tiny_wordlevel_dir: Path, changed_copy: Callable[..., str], name: str, change: Callable[[Any], None]
) -> None:
    """B022."""
    assert changed_copy(name, change) != PreTrainedHFTokenizer(str(tiny_wordlevel_dir)).fingerprint()


def test_the_fingerprint_knows_the_settings_and_not_the_calls_made(tiny_wordlevel_dir: Path) -> None:
    plain = PreTrainedHFTokenizer(str(tiny_wordlevel_dir))
    before = plain.fingerprint()
    cutting = PreTrainedHFTokenizer(str(tiny_wordlevel_dir), truncation=True, max_length=2)
    assert cutting.fingerprint() != before
    cutting_before = cutting.fingerprint()
    cutting.tokenize_batch(["a b c", "d"])
    plain.tokenize("a b c")
    assert (plain.fingerprint(), cutting.fingerprint()) == (before, cutting_before)


def test_a_saved_tokenizer_gives_the_same_ids(tokenizer: TokenizerWrapper, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again: TokenizerWrapper = (
        PreTrainedSPTokenizer(str(tmp_path / "tokenizer.model"))
        if isinstance(tokenizer, PreTrainedSPTokenizer)
        else PreTrainedHFTokenizer(str(tmp_path))
    )
    assert again.tokenize("hello world . é") == tokenizer.tokenize("hello world . é")
    assert again.fingerprint() == tokenizer.fingerprint()


def test_naming_the_classes_imports_no_library_of_tokenizers() -> None:
    code = (
        "import sys, modalities_pipeline.tokenization.training, modalities_pipeline.data.tokenized_pack;"
        "print(sorted({'torch', 'transformers', 'sentencepiece', 'tokenizers'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["model"]["merges"].reverse(),
        lambda content: content["model"]["merges"].insert(3, content["model"]["merges"].pop(4)),
        lambda content: content["added_tokens"][0].update(lstrip=True),
        lambda content: content["pre_tokenizer"].update(add_prefix_space=True),
    ],
)
def test_the_fingerprint_changes_with_one_merge_or_rule(
    tiny_bpe_dir: Path, tmp_path: Path, change: Callable[[Any], None]
) -> None:
    """B022."""
    shutil.copytree(tiny_bpe_dir, tmp_path / "copy")
    path = tmp_path / "copy" / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    same = PreTrainedHFTokenizer(str(tmp_path / "copy")).fingerprint()
    assert same == PreTrainedHFTokenizer(str(tiny_bpe_dir)).fingerprint()
    change(content)
    path.write_text(json.dumps(content), "utf-8")
    assert PreTrainedHFTokenizer(str(tmp_path / "copy")).fingerprint() != same


def test_the_fingerprint_of_a_model_file_is_that_of_its_content(tiny_sp_file: Path, tmp_path: Path) -> None:
    """B022."""
    copy = tmp_path / "other name.model"
    copy.write_bytes(tiny_sp_file.read_bytes())
    fingerprint = PreTrainedSPTokenizer(str(copy)).fingerprint()
    assert fingerprint == PreTrainedSPTokenizer(str(tiny_sp_file)).fingerprint()
    assert len(fingerprint.partition(":")[2]) == 32


def test_another_process_finds_the_same_fingerprint(tiny_bpe_dir: Path) -> None:
    code = (
        "import sys; from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer;"
        "print(PreTrainedHFTokenizer(sys.argv[1]).fingerprint())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tiny_bpe_dir)], check=True, capture_output=True, text=True, timeout=120
    )
    assert result.stdout.strip() == PreTrainedHFTokenizer(str(tiny_bpe_dir)).fingerprint()


@pytest.mark.parametrize(
    ("flags", "length"),
    [
        ({}, None),
        ({"padding": True}, None),
        ({"max_length": 5}, None),
        ({"padding": "max_length", "max_length": 5}, 5),
        ({"padding": "max_length"}, 64),
    ],
)
def test_the_padded_length_is_that_of_the_settings_or_the_tokenizers_own(
    tiny_wordlevel_dir: Path, flags: dict[str, Any], length: int | None
) -> None:
    tokenizer = PreTrainedHFTokenizer(str(tiny_wordlevel_dir), special_tokens={"pad_token": "<pad>"}, **flags)
    assert tokenizer.padded_length == length
    assert len(tokenizer.tokenize("a b")) == (length or 2)


@pytest.mark.parametrize(
    ("padding", "message"),
    [("bogus", "padding"), (7, "padding"), ("max_length", "a token to pad with"), (True, "a token to pad with")],
)
def test_padding_that_cannot_be_done_is_a_config_error(padding: Any, message: str, tiny_bpe_dir: Path) -> None:
    config = {"pretrained_model_name_or_path": str(tiny_bpe_dir), "padding": padding}
    with pytest.raises(ConfigError, match=message):
        build_tokenizer({"component_key": "tokenizer", "variant_key": "pretrained_hf_tokenizer", "config": config})
    with pytest.raises(ConfigError, match=message):
        PreTrainedHFTokenizer(str(tiny_bpe_dir), padding=padding)
