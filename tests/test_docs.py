"""What docs/*.md and the example configs say is true: they are run."""

import importlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from modalities_pipeline.__main__ import main
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter

ROOT = Path(__file__).resolve().parents[1]
CONFIG = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
DATA = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
WORDS = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", DATA, flags=re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_wordlevel_dir: Path) -> Path:
    """Where the commands are started, with what the examples expect to find."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_wordlevel_dir, tmp_path / "my_tokenizer")
    (tmp_path / "web.jsonl").write_text('{"text": "the cat"}\n{"text": "hello world"}\n')
    for name in ("tokenized_pack", "instruction_data"):
        text = (ROOT / "configs" / f"{name}.yaml").read_text("utf-8")
        (tmp_path / f"{name}.yaml").write_text(text.replace("<|endoftext|>", "<eod>"), "utf-8")
    return tmp_path


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize(("word", "function"), WORDS)
def test_each_word_explains_itself_and_has_its_function(
    word: str, function: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_information:
        main(["data", word, "--help"])
    assert exit_information.value.code == 0
    assert "usage" in capsys.readouterr().out
    module, _, name = function.rpartition(".")
    assert callable(getattr(importlib.import_module(f"modalities_pipeline.{module}"), name))


def test_the_table_names_every_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["data", "--help"])
    known = re.findall(r"^    (\w+)", capsys.readouterr().out, flags=re.MULTILINE)
    assert sorted(known) == sorted(word for word, _ in WORDS)


def test_the_packing_example_packs(folder: Path) -> None:
    assert main(["data", "create_raw_index", "web.jsonl"]) == 0
    assert main(["data", "pack_encoded_data", "tokenized_pack.yaml"]) == 0
    with PackedFile(folder / "web.pbin") as file:
        assert file.num_documents == 2


def test_the_instruction_example_renders_and_splits(folder: Path) -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
    (folder / "chat.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for _ in range(50)))
    command = ["data", "prepare_instruction_tuning_data", "--config_file_path", "instruction_data.yaml"]
    assert main(command) == 0
    [train] = (folder / "instruction_data").glob("chat_*/chat_train.*.jsonl")
    first = json.loads(train.read_text("utf-8").splitlines()[0])
    assert first["chat"] == "User: hello\nAssistant: <|begin|>world<|end|>\n"
    assert list(train.parent.glob("chat_train.*.idx"))


def test_the_python_example_runs(folder: Path) -> None:
    with PackedFileWriter(folder / "web.pbin", 2) as writer:
        for length in (20, 3, 16):
            writer.write_document([1] * length)
    [example] = re.findall(r"^```python\n(.*?)^```", DATA, flags=re.MULTILINE | re.DOTALL)
    exec(compile(example, "docs/data.md", "exec"), {})
    with PackedFile(folder / "shuffled.pbin") as file:
        assert sorted(len(file.document(position)) for position in range(2)) == [16, 20]


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the example configs, in a working directory without data."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(ROOT / "configs", tmp_path / "configs")


@pytest.mark.parametrize("command", [line.split("#")[0] for line in "".join(_blocks(CONFIG, "bash")).splitlines()])
def test_the_commands_about_configs_succeed(command: str, configs: Path) -> None:
    program, *arguments = shlex.split(command)
    assert program == "modalities-pipeline"
    assert main(arguments) == 0


def test_the_mistakes_are_told_as_shown(
    configs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(configs)
    [faulty] = [block for block in _blocks(CONFIG, "yaml") if "lr: high" in block]
    [expected] = _blocks(CONFIG, "text")
    Path("mine.yaml").write_text(faulty, encoding="utf-8")
    assert main(["config", "check", "mine.yaml"]) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mine.yaml:")]
    assert told == expected.splitlines()


def test_the_example_configs_are_short() -> None:
    lengths = {path.stem: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "configs").glob("*.yaml")}
    assert {name for name, length in lengths.items() if length > 120} == {"train_base"}
