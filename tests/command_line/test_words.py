"""All words: each explains itself, a misspelt one is answered with the closest, exit codes tell whose fault it was."""

import re
from collections.abc import Iterator

import click
import pytest

from modalities_pipeline import __version__
from modalities_pipeline.__main__ import main
from modalities_pipeline.command_line.root import TARGETS, root
from modalities_pipeline.exceptions import ConfigError, OutputLockedError, OutputNotWritableError
from modalities_pipeline.orchestration import summary

MODALITIES = {
    "run": "config_file_path experiments_root_path experiment_id error_log_folder test_comm",
    "warmstart": "experiments_root_path config_file_path last_checkpoint_info_file_path error_log_folder",
    "generate_text": "config_file_path",
    "convert_pytorch_to_hf_checkpoint": "config_file_path output_hf_checkpoint_dir prediction_key",
    "data prepare_instruction_tuning_data": "config_file_path",
    "data create_raw_index": "index_path file_existence_policy",
    "data pack_encoded_data": "file_existence_policy",
    "data create_shuffled_dataset_chunk": "input_file_list_path input_data_root_path output_chunk_file_path chunk_id "
    "num_chunks file_existence_policy global_seed",
    "data create_shuffled_jsonl_chunk": "input_file_list_path input_data_root_path output_chunk_file_path chunk_id "
    "num_chunks file_existence_policy global_seed",
    "data merge_packed_data": "",
    "data shuffle_tokenized_data": "input_data_path output_data_path batch_size file_existence_policy seed",
    "data shuffle_jsonl_data": "input_data_path output_data_path file_existence_policy seed",
    "benchmark prepare_sweep_configs": "sweep_config_path output_dir world_sizes",
    "benchmark list_remaining_runs": "exp_root file_list_path expected_steps world_size "
    "create_new_folders_if_partially_done skip_exception_types",
    "profile distributed": "config_file_path experiment_root_path",
}
OURS = [
    "data repair_packed_data",
    "config check",
    "config show",
    "config explain",
    "config diff",
    "components",
    "summary",
]


def _words(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All groups and words, each as what one types."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        yield (*before, word)
        if isinstance(command, click.Group):
            yield from _words(command, (*before, word))


ALL = list(_words(root))


def _help(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as exit_information:
        main([*words, "--help"])
    assert exit_information.value.code == 0
    return capsys.readouterr().out


def test_every_word_of_modalities_is_there_and_no_other_than_ours():
    groups = {words for words in ALL if any(other[: len(words)] == words and other != words for other in ALL)}
    assert sorted(" ".join(words) for words in ALL if words not in groups) == sorted([*MODALITIES, *OURS])


@pytest.mark.parametrize(("words", "options"), MODALITIES.items())
def test_every_option_of_modalities_is_there(words, options, capsys):
    known = set(re.findall(r"--(\w+)", _help(capsys, *words.split())))
    assert set(options.split()) <= known


@pytest.mark.parametrize("words", [(), *ALL], ids=" ".join)
def test_each_word_and_option_explains_itself(words, capsys):
    text = _help(capsys, *words)
    assert text.startswith(f"usage: {' '.join(('modalities-pipeline', *words))}")
    entries = re.findall(r"^    (-\S.*(?:\n {5,}.*)*)", text, flags=re.MULTILINE)
    assert entries
    for entry in entries:
        assert re.search(r"\s{2,}\S.*[.\]]$", entry), f"{entry} says nothing"


def test_the_short_help_option_works_at_every_level(capsys):
    for words in ([], ["config"], ["config", "check"]):
        with pytest.raises(SystemExit) as exit_information:
            main([*words, "-h"])
        assert exit_information.value.code == 0
        assert capsys.readouterr().out.startswith("usage: ")


def test_the_help_of_the_whole_lists_every_first_word_and_exit_code(capsys):
    text = _help(capsys)
    for word in TARGETS:
        assert re.search(rf"^    {word}\b", text, flags=re.MULTILINE)
    assert re.findall(r"^    (\d+) ", text, flags=re.MULTILINE) == ["0", "1", "2", "3", "70", "130"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["dta"], "No such command 'dta'. Did you mean 'data'?"),
        (["data", "create_raw_indx"], "Did you mean 'create_raw_index'?"),
        (["config", "chek", "a.yaml"], "Did you mean 'check'?"),
        (["run", "--config_fil", "a"], "Did you mean '--config_file_path'?"),
        (["run"], "Missing option '--config_file_path'"),
        (["warmstart", "--config_file_path", "a"], "Missing option '--last_checkpoint_info_file_path'"),
        (["data", "create_raw_index"], "Missing argument 'SRC_PATH'"),
        (["data", "merge_packed_data", "a"], "Missing argument"),
        (["data", "create_raw_index", "a", "--file_existence_policy", "keep"], "'error', 'skip', 'override'"),
        (["run", "--config_file_path", "a", "--set", "b"], "write KEY=VALUE"),
        (["benchmark", "prepare_sweep_configs", "--world_sizes", "2,x"], "'2,x' is not a list of numbers of processes"),
        (["config", "check"], "Missing argument 'PATHS...'"),
        (["config", "check", "a", "--kind", "trainin"], "'training'"),
        (["config", "check", "a", "--world_size", "0"], "0 is not in the range x>=1"),
        ([], "Commands:"),
    ],
)
def test_wrong_usage_has_exit_code_2_and_says_what_is_right(command, message, capsys):
    with pytest.raises(SystemExit) as exit_information:
        main(command)
    assert exit_information.value.code == 2
    error = capsys.readouterr().err
    assert "usage: modalities-pipeline" in error
    assert message in error


def test_version_is_told(capsys):
    with pytest.raises(SystemExit) as exit_information:
        main(["--version"])
    assert exit_information.value.code == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize(
    "command",
    [
        ["data", "create_raw_index", "nope.jsonl"],
        ["data", "pack_encoded_data", "nope.yaml"],
        ["data", "merge_packed_data", "nope.pbin", "target.pbin"],
        ["warmstart", "--config_file_path", "nope.yaml", "--last_checkpoint_info_file_path", "nope.json"],
        ["config", "show", "nope.yaml"],
        ["benchmark", "prepare_sweep_configs", "--sweep_config_path", "nope.yaml", "--output_dir", "out"],
        ["benchmark", "list_remaining_runs", "--exp_root", "nope.d", "--file_list_path", "l", "--expected_steps", "1"],
    ],
)
def test_a_missing_file_is_one_line_that_names_it(command, capsys, tmp_path, monkeypatch):
    """B085: exit code 1 and no traceback."""
    monkeypatch.chdir(tmp_path)
    assert main(command) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error")]
    assert "nope." in line


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (ConfigError("told"), 1),
        (OutputNotWritableError("told"), 3),
        (OutputLockedError("told"), 3),
        (OSError(28, "told"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_exit_code_tells_whose_fault_it_was(error, exit_code, monkeypatch, capsys):
    """B085"""

    def fail(since):
        raise error

    monkeypatch.setattr(summary, "main", fail)
    assert main(["summary"]) == exit_code
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert "told" in line or "interrupted" in line


def test_a_fault_of_the_program_has_its_own_exit_code_and_shows_its_place(monkeypatch, capsys):
    def fail(since):
        raise RuntimeError("a fault")

    monkeypatch.setattr(summary, "main", fail)
    assert main(["summary"]) == 70
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.splitlines()[-1].startswith("Error: this is a fault of modalities-pipeline")


def test_the_exit_code_and_options_of_a_word_are_passed_on(monkeypatch):
    monkeypatch.setattr(summary, "main", lambda since: since)
    assert main(["summary", "--since", "5"]) == 5


def test_shells_can_complete_words(monkeypatch, capsys):
    monkeypatch.setenv("_MODALITIES_PIPELINE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "modalities-pipeline data create_")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert main([]) == 0
    words = [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]
    assert words == ["create_raw_index", "create_shuffled_dataset_chunk", "create_shuffled_jsonl_chunk"]
