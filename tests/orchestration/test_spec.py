"""The pipeline's spec is read with absolute paths, and all of its faults are named at once, with file and line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from modalities_pipeline.data.raw_files import find_raw_files
from modalities_pipeline.exceptions import ConfigError, UserError
from modalities_pipeline.orchestration.spec import find_spec_path, load_pipeline_spec

REPOSITORY = Path(__file__).parents[2]

SPEC = """\
output_dir: outputs
corpora:
  train: {files: ["data/*.jsonl"]}
  validation: {documents: {python_docs: validation}}
tokenizer:
  train: {corpus: train, vocab_size: 300}
  eod_token: <eod>
experiments:
  tiny:
    training_config: training.yaml
    train_corpus: train
    validation_corpus: validation
    generated_text: {prompts: ["The "]}
"""

TRAINING = "settings: {paths: {train_dataset_path: x, validation_dataset_path: x}}\noptimizer: {lr: 1}\n"

WriteSpec = Callable[[str], Path]


@pytest.fixture
def write_spec(tmp_path: Path) -> WriteSpec:
    """Write a spec, and the training config that it names, into a folder of their own."""

    def write(text: str) -> Path:
        (tmp_path / "training.yaml").write_text(TRAINING)
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        return path

    return write


def faults_of(path: Path) -> list[str]:
    """What is wrong with a spec, one line per fault, without the folder."""
    with pytest.raises(ConfigError) as caught:
        load_pipeline_spec(path)
    return str(caught.value).replace(f"{path.parent}/", "").splitlines()


def test_relative_paths_are_relative_to_the_specs_folder(write_spec: WriteSpec, tmp_path: Path) -> None:
    spec = load_pipeline_spec(write_spec(SPEC))
    assert spec.output_dir == tmp_path / "outputs"
    assert spec.base_dir == tmp_path
    assert spec.experiments["tiny"].training_config == tmp_path / "training.yaml"


def test_a_tokenizers_path_is_made_absolute_and_a_model_id_is_left_alone(write_spec: WriteSpec, tmp_path: Path) -> None:
    (tmp_path / "my_tokenizer").mkdir()
    for name, expected in (("my_tokenizer", str(tmp_path / "my_tokenizer")), ("some/model", "some/model")):
        config = f"{{pretrained_model_name_or_path: {name}}}"
        node = f"component: {{component_key: tokenizer, variant_key: pretrained_hf_tokenizer, config: {config}}}"
        spec = load_pipeline_spec(write_spec(SPEC.replace("train: {corpus: train, vocab_size: 300}", node)))
        assert spec.tokenizer.component is not None
        assert spec.tokenizer.component["config"]["pretrained_model_name_or_path"] == expected


def test_all_faults_are_reported_together_with_their_lines(write_spec: WriteSpec) -> None:
    text = (
        SPEC.replace("eod_token", "eod_tokn")
        .replace("train_corpus: train", "train_corpus: trian")
        .replace("training_config: training.yaml", "training_config: nowhere.yaml")
        .replace("vocab_size: 300", "vocab_size: many")
    )
    faults = faults_of(write_spec(text))
    assert [line.partition(": ")[0] for line in faults] == [
        "pipeline.yaml:6:26",
        "pipeline.yaml:7:3",
        "pipeline.yaml:10:5",
        "pipeline.yaml:11:5",
    ]
    assert any("did you mean 'eod_token'?" in fault for fault in faults)
    assert any("no corpus 'trian'; did you mean 'train'?" in fault for fault in faults)
    assert any("nowhere.yaml" in fault for fault in faults)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("policy", "policy", "3: corpora.train: give either 'files'"),
        ("  validation: {", "  tokenizer: {", "corpora.tokenizer: the name is reserved"),
        ("  tiny:", "  train:", "experiments.train: the name is already that of a corpus"),
        ("  tiny:", "  tiny model:", "experiments.tiny model"),
        ("output_dir: outputs", "output_dir: outputs\npolicy: sometimes", "policy: "),
        ('prompts: ["The "]', 'prompts: ["The "], temperature: -1', "generated_text.temperature"),
    ],
)
def test_each_fault_names_its_key(write_spec: WriteSpec, old: str, new: str, message: str) -> None:
    text = SPEC.replace('{files: ["data/*.jsonl"]}', "{num_chunks: 1}") if old == "policy" else SPEC.replace(old, new)
    assert any(message in fault for fault in faults_of(write_spec(text))), faults_of(write_spec(text))


def test_the_environment_variable_chooses_the_spec(
    write_spec: WriteSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write_spec(SPEC)
    monkeypatch.setenv("MODALITIES_PIPELINE_CONFIG", str(path))
    assert find_spec_path() == path
    monkeypatch.setenv("MODALITIES_PIPELINE_CONFIG", str(tmp_path / "missing.yaml"))
    with pytest.raises(ConfigError, match=r"missing\.yaml, which is not a file"):
        find_spec_path()


def test_without_it_the_spec_is_that_of_the_folder_then_that_of_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MODALITIES_PIPELINE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert find_spec_path() == REPOSITORY / "configs" / "pipeline.yaml"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "pipeline.yaml").write_text(SPEC)
    assert find_spec_path() == tmp_path / "configs" / "pipeline.yaml"


def test_the_shipped_spec_is_valid() -> None:
    spec = load_pipeline_spec(REPOSITORY / "configs" / "pipeline.yaml")
    assert spec.output_dir == REPOSITORY / "outputs"
    assert set(spec.experiments) == {"tiny"}


def test_globs_work_below_a_folder_whose_name_looks_like_one(tmp_path: Path) -> None:
    folder = tmp_path / "run [1]*?"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "a.jsonl").touch()
    (folder / "training.yaml").write_text(TRAINING)
    (folder / "pipeline.yaml").write_text(SPEC)
    spec = load_pipeline_spec(folder / "pipeline.yaml")
    files = spec.corpora["train"].files
    assert files is not None
    assert find_raw_files(files, spec.base_dir) == [folder / "data" / "a.jsonl"]
    with pytest.raises(UserError, match=re.escape(f"'nowhere/*' (looked in {folder})")):
        find_raw_files(["nowhere/*"], spec.base_dir)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        *((f"num_chunks: {value}", "num_chunks") for value in ("true", '"3"', "2.0", "0")),
        ("seed: 1.0", "seed"),
    ],
)
def test_whole_numbers_are_written_as_such(write_spec: WriteSpec, entry: str, key: str) -> None:
    [fault] = faults_of(write_spec(SPEC.replace('["data/*.jsonl"]', f'["data/*.jsonl"], {entry}')))
    assert fault.startswith("pipeline.yaml:3:36: ")
    assert f": corpora.train.{key}: " in fault


@pytest.mark.parametrize(
    "entry", ["grace_in_s: .inf", "timeout_in_s: .nan", "timeout_in_s: true", "num_processes: 2.0"]
)
def test_launcher_settings_are_finite_and_strict(write_spec: WriteSpec, entry: str) -> None:
    [fault] = faults_of(write_spec(f"{SPEC}    launcher: {{{entry}}}\n"))
    assert f"launcher.{entry.partition(':')[0]}: " in fault


def test_the_group_of_the_first_assets_is_a_reserved_name(write_spec: WriteSpec) -> None:
    [fault] = faults_of(write_spec(SPEC.replace("  tiny:", "  sources:")))
    assert "experiments.sources: the name is reserved" in fault


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("optimiser.lr: 0.1", "pipeline.yaml:14:17: optimiser.lr: there is no 'optimiser'"),
        (
            "settings.paths.train_dataset_path: y",
            "pipeline.yaml:14:17: the override settings.paths.train_dataset_path ",
        ),
    ],
)
def test_an_override_that_does_not_fit_is_a_fault_of_the_spec(write_spec: WriteSpec, override: str, words: str) -> None:
    [fault] = faults_of(write_spec(f"{SPEC}    overrides: {{{override}}}\n"))
    assert fault.startswith(words)


def test_plugins_are_valid_entries_and_their_files_relative_to_the_spec(write_spec: WriteSpec, tmp_path: Path) -> None:
    plugin = "{component_key: model, variant_key: mine, component_path: 'code/models.py:MyModel'}"
    spec = load_pipeline_spec(write_spec(f"{SPEC}plugins: [{plugin}]\n"))
    [(entry, origin)] = spec.experiments["tiny"].plugins
    assert entry["component_path"] == f"{tmp_path}/code/models.py:MyModel"
    assert str(origin) == f"{tmp_path}/pipeline.yaml:14:11"
    wrong = plugin.replace("variant_key", "variant")
    faults = faults_of(write_spec(f"{SPEC}plugins: [{wrong}]\n"))
    assert any("plugins.0.variant: unknown key; did you mean 'variant_key'?" in fault for fault in faults)


def test_an_override_of_a_part_of_a_component_has_to_be_dotted(write_spec: WriteSpec) -> None:
    override = "    overrides: {optimizer: {config: {lr: 3}}}\n"
    [fault, *_] = faults_of(write_spec(SPEC + override))
    assert "experiments.tiny.overrides.optimizer: would replace all of optimizer" in fault
    assert "optimizer.config.NAME: VALUE" in fault
