"""What docs/*.md and the example configs say is true: they are run."""

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from modalities_pipeline.__main__ import main
from modalities_pipeline.config.checking.error_locations import models_in
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.config.resolution import resolve
from modalities_pipeline.config.schemas.kinds import KINDS, PARTS, PIPELINE
from modalities_pipeline.config.schemas.settings import TrainingSettings, WarmstartCheckpointPaths
from modalities_pipeline.config.schemas.short_configs import DEFAULT_SETTINGS
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter

ROOT = Path(__file__).resolve().parents[1]
CONFIG = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
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


@pytest.fixture
def packed_data(configs: Path) -> None:
    """Packed data where the example configs look for them."""
    for name in ("train", "validation"):
        path = configs.parent / "outputs" / name / "merged_pbin" / "merged.pbin"
        path.parent.mkdir(parents=True)
        with PackedFileWriter(path, 2) as writer:
            writer.write_document([position % 1000 for position in range(50_000)])


def _commands(text: str) -> list[str]:
    """The commands in a text of shell lines or of a YAML file's comments, each on one line."""
    lines = re.sub(r" \\\n#?\s*", " ", text).splitlines()
    return [line.strip("# ") for line in lines if re.match(r"(#   |\s*)(modalities-pipeline|torchrun) ", line)]


COMMANDS = _commands("".join(_blocks(CONFIG, "bash")))
HEADERS = [
    command for path in sorted((ROOT / "configs").glob("*.yaml")) for command in _commands(path.read_text("utf-8"))
]
ABOUT_CONFIGS = [
    command.split("#")[0].strip()
    for command in (*COMMANDS, *HEADERS)
    if re.match(r"modalities-pipeline (config|comp)", command)
]


@pytest.mark.parametrize("command", ABOUT_CONFIGS)
def test_the_commands_about_configs_succeed(command: str, configs: Path) -> None:
    assert main(shlex.split(command)[1:]) == 0


@pytest.mark.parametrize("command", [*COMMANDS, *HEADERS, *_commands("".join(_blocks(README, "bash")))])
def test_every_option_of_a_command_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = re.split(r"modalities[-_]pipeline ", command.split(" # ")[0], maxsplit=1)[1].split()
    names = list(takewhile(lambda word: re.fullmatch("[a-z_]+", word), words))
    with pytest.raises(SystemExit) as exit_information:
        main([*names, "--help"])
    assert exit_information.value.code == 0
    options = {word.split("=")[0] for word in words if word.startswith("--")}
    assert options <= set(re.findall(r"--\w+", capsys.readouterr().out))


def _save(name: str, text: str) -> Path:
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


def _example(language: str, part: str) -> str:
    """The only example of config.md in which a text stands."""
    [block] = [block for block in _blocks(CONFIG, language) if part in block]
    return block


def test_the_mistakes_are_told_as_shown(configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _save("configs/mine.yaml", _example("yaml", "lr: high"))
    assert main(["config", "check", "configs/mine.yaml"]) == 1
    told = capsys.readouterr()
    lines = [*told.err.splitlines(), *told.out.splitlines()]
    [expected] = _blocks(CONFIG, "text")
    assert [line for line in lines if not line.startswith("note: ")] == expected.splitlines()


def test_the_table_of_settings_is_complete() -> None:
    rows = re.findall(r"^\| (`[a-z_.]+`.*?) \| .* \| (.*) \|$", CONFIG.split("## Values")[0], flags=re.MULTILINE)
    named: dict[str, str] = {}
    for cell, default in rows:
        first, *others = re.findall(r"`([\w.]+)`", cell)
        stem = first.rpartition(".")[0]
        for other in others:
            full = first.rpartition("_")[0] + other[3:] if other.startswith("...") else stem + other
            named[full if other.startswith(".") else other] = default
        named[first] = default
    fields: dict[str, bool] = {}
    for name, field in TrainingSettings.model_fields.items():
        models = [model for model in models_in(field.annotation) if model is not WarmstartCheckpointPaths]
        inner = {f"{name}.{key}": item for model in models for key, item in model.model_fields.items()}
        fields |= {key: item.is_required() for key, item in (inner or {name: field}).items()}
    given = {key for key in fields if key.split(".")[0] in DEFAULT_SETTINGS} | {"step_profile.dp_degree"}
    assert set(named) == set(fields)
    assert {key for key, default in named.items() if default == "required"} == {
        key for key, is_required in fields.items() if is_required and key not in given
    }


def test_the_table_of_kinds_is_complete() -> None:
    table = CONFIG.split("| kind |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == sorted([*KINDS, PIPELINE, PARTS])


def test_the_sweep_makes_a_config_of_each_combination(configs: Path) -> None:
    _save("sweep.yaml", _example("yaml", "sweep:"))
    [command] = [command for command in COMMANDS if "prepare_sweep_configs" in command]
    assert main(shlex.split(command)[1:]) == 0
    paths = sorted(Path("sweep").rglob("sweep.yaml"))
    rates = [resolve(load_config(path)).data["optimizer"]["config"]["lr"] for path in paths]
    assert sorted(rates) == [1e-3, 3e-3]
    assert main(["config", "check", *map(str, paths)]) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("packed_data")
def test_a_component_of_ones_own_is_trained_from_yaml_and_from_python(configs: Path) -> None:
    short = "settings: {training_target: {num_target_tokens: 40960}}\n"
    yaml_text = _example("yaml", "plugins:") + short
    program, model = _example("python", "add_custom_component"), _example("python", "class MyModel(")
    _save("configs/my_model.py", model)
    _save("configs/train.py", program)
    _save("configs/my_model.yaml", yaml_text)
    assert main(["config", "check", "configs/my_model.yaml"]) == 0
    word = ["-m", "modalities_pipeline", "run", "--config_file_path", "configs/my_model.yaml"]
    _run(*word, "--experiment_id", "yaml")
    _save("configs/my_model.yaml", re.sub(r"plugins:\n(  .*\n)+", "", yaml_text))
    _run("configs/train.py")
    results = [json.loads(path.read_text("utf-8")) for path in Path("experiments").glob("*/result.json")]
    assert [result["num_steps"] for result in results] == [40, 40]


def _run(*arguments: str) -> None:
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_example_configs_are_short() -> None:
    lengths = {path.stem: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "configs").glob("*.yaml")}
    assert {name for name, length in lengths.items() if length > 120} == {"train_base"}
