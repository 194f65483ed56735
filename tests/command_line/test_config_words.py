"""`config` and `components`: what they tell about files and components, and with which exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from modalities_pipeline.__main__ import main
from modalities_pipeline.command_line import check_output
from modalities_pipeline.config.check import CheckReport
from modalities_pipeline.config.checking.faults import Fault

GOOD = """\
tokenizer:
  component_key: tokenizer
  variant_key: pretrained_sp_tokenizer
  config:
    tokenizer_model_file: my.model
"""
BAD = GOOD.replace("tokenizer_model_file", "tokenizer_model_fil")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Function (name, text) -> path relative to the current folder of a file with this text."""
    monkeypatch.chdir(tmp_path)

    def write_text(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    return write_text


def test_a_good_file_is_ok(write, capsys):
    assert main(["config", "check", write("good.yaml", GOOD)]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[-1] == "good.yaml: ok (checked as: parts)"
    assert output.err == ""


def test_all_faults_are_told_with_their_places(write, capsys):
    second = BAD.replace("tokenizer:", "other:", 1).replace("variant_key: pretrained_sp", "variant_key: pretraned_sp")
    assert main(["config", "check", write("bad.yaml", BAD + second)]) == 1
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert any(line.startswith("bad.yaml:5:5: tokenizer.config.tokenizer_model_fil: unknown key") for line in lines), (
        lines
    )
    assert any(line.startswith("bad.yaml:8:3: other.variant_key: ") for line in lines), lines
    assert "did you mean 'tokenizer_model_file'?" in output.err
    assert output.out.splitlines()[-1] == f"bad.yaml: {len(lines)} faults (checked as: parts)"


def test_set_changes_what_is_checked(write, capsys):
    path = write("good.yaml", GOOD)
    assert main(["config", "check", path, "--set", "tokenizer.config.tokenizer_model_file=[1]"]) == 1
    assert "--set: tokenizer.config.tokenizer_model_file" in capsys.readouterr().err
    assert main(["config", "check", path, "--set", "tokenizr.config=1"]) == 1
    assert "tokenizr" in capsys.readouterr().err


def test_a_file_is_checked_as_what_it_is_said_to_be(write, capsys):
    assert main(["config", "check", write("good.yaml", GOOD), "--kind", "packing"]) == 1
    output = capsys.readouterr()
    assert "settings: is missing" in output.err
    assert "(checked as: packing)" in output.out


def test_options_reach_the_check(write, monkeypatch):
    calls = []

    def check_config(path, **given):
        calls.append((path, given))
        return CheckReport(path, "parts", (), ())

    monkeypatch.setattr(check_output, "check_config", check_config)
    words = ["--kind", "training", "--world_size", "8", "--last_checkpoint_info_file_path", "info.json"]
    assert main(["config", "check", write("a.yaml", ""), *words, "--set", "a.b=1"]) == 0
    [(path, given)] = calls
    assert [(override.dotted_key, override.value) for override in given.pop("overrides")] == [("a.b", 1)]
    assert path == Path("a.yaml")
    assert given == {"kind": "training", "world_size": 8, "last_checkpoint_info_file_path": Path("info.json")}


def test_the_training_report_is_told_for_one_file_only(write, monkeypatch, capsys):
    report = CheckReport(Path("a.yaml"), "training", (), (Fault(("a",), "a note"),), "THE REPORT")
    monkeypatch.setattr(check_output, "check_config", lambda path, **given: report)
    assert main(["config", "check", write("a.yaml", "")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "note: a: a note",
        "THE REPORT",
        "a.yaml: ok (checked as: training)",
    ]
    assert main(["config", "check", "a.yaml", write("b.yaml", "")]) == 0
    assert "THE REPORT" not in capsys.readouterr().out


def test_folders_and_several_files_get_a_line_each(write, capsys):
    write("folder/b.yaml", GOOD)
    write("folder/below/a.yml", BAD)
    write("folder/.hidden/a.yaml", "[")
    write("folder/a.txt", "[")
    extra = write("syntax.yaml", "a: [1\nb: 2\n")
    assert main(["config", "check", "folder", extra, extra]) == 1
    output = capsys.readouterr()
    lines = [line for line in output.out.splitlines() if line.startswith(("folder", "syntax"))]
    assert lines == [
        "folder/b.yaml: ok (checked as: parts)",
        "folder/below/a.yml: 1 fault (checked as: parts)",
        "syntax.yaml: 1 fault",
    ]
    assert "syntax.yaml:2:" in output.err


def test_a_folder_without_yaml_files_is_told(write, capsys):
    write("folder/a.txt", "")
    assert main(["config", "check", "folder"]) == 1
    assert "folder: there is no YAML file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nope.yaml", "pipe"])
def test_what_cannot_be_read_is_a_fault(name, write, capsys):
    write("x.yaml", "")
    if name == "pipe":
        os.mkfifo("pipe")
    assert main(["config", "check", name]) == 1
    assert name in capsys.readouterr().err


def test_faults_are_told_as_json_for_programs(write, capsys):
    files = [write("bad.yaml", BAD), write("syntax.yaml", "a: [1\nb: 2\n"), write("good.yaml", GOOD)]
    assert main(["config", "check", *files, "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    [fault] = [fault for fault in found if fault["key"] == "tokenizer.config.tokenizer_model_fil"]
    assert "did you mean 'tokenizer_model_file'?" in fault.pop("message")
    assert fault == {
        "file": "bad.yaml",
        "line": 5,
        "column": 5,
        "key": "tokenizer.config.tokenizer_model_fil",
        "severity": "error",
    }
    [syntax] = [fault for fault in found if fault["file"] == "syntax.yaml"]
    assert syntax["line"] == 2
    assert syntax["key"] == ""
    assert not [fault for fault in found if fault["file"] == "good.yaml" and fault["severity"] == "error"]


PART = "norm: {component_key: layer_norm, variant_key: layer_norm, config: {normalized_shape: 8}}\n"


def test_no_faults_as_json_are_an_empty_list(write, capsys):
    assert main(["config", "check", write("a.yaml", PART), "--format", "json", "--kind", "parts"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_show_tells_values_and_where_they_stand(write, capsys):
    write("base.yaml", "a: {b: 1, c: 2}\n")
    path = write("top.yaml", "extends: base.yaml\na:\n  c: ${.b}\nd: ${a}\n")
    assert main(["config", "show", path, "--set", "a.b=7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("b: 7" in line and "--set" in line for line in lines), lines
    assert any("c: 7" in line and "top.yaml:3" in line for line in lines), lines


def test_show_tells_one_part_only(write, capsys):
    path = write("a.yaml", "a: {b: [{c: 5}]}\nother: 6\n")
    assert main(["config", "show", path, "--key", "a.b[0].c"]) == 0
    output = capsys.readouterr().out
    assert "5" in output
    assert "other" not in output


def test_show_tells_a_key_that_is_not_there(write, capsys):
    path = write("a.yaml", "optimizer: {lr: 1}\n")
    assert main(["config", "show", path, "--key", "optimizer.lrr"]) == 1
    assert "did you mean 'lr'?" in capsys.readouterr().err


def test_show_never_tells_the_value_of_an_environment_variable(write, capsys, monkeypatch):
    monkeypatch.setenv("MY_SECRET", "hush-hush")
    path = write("a.yaml", "a: ${oc.env:MY_SECRET}\nb: 'x ${a} ${oc.env:MY_SECRET}'\nc: {d: '${a}'}\ne: ${c}\n")
    for more in ([], ["--key", "a"], ["--key", "e"]):
        assert main(["config", "show", path, *more]) == 0
        output = capsys.readouterr()
        assert "hush" not in output.out + output.err


def test_explain_tells_fields_of_a_variant_and_variants_of_a_component(capsys):
    assert main(["config", "explain", "optimizer/adam_w"]) == 0
    text = capsys.readouterr().out
    assert "lr" in text
    assert "weight_decay_groups_excluded" in text
    assert main(["config", "explain", "optimizer"]) == 0
    text = capsys.readouterr().out
    assert "adam_w" in text
    assert "weight_decay" not in text


@pytest.mark.parametrize("component", ["optimizr", "optimizer/adm_w"])
def test_explain_names_the_closest_component(component, capsys):
    assert main(["config", "explain", component]) == 1
    assert "optimizer" in capsys.readouterr().err


def test_diff_tells_what_differs_and_where(write, capsys):
    write("base.yaml", "a: {b: 1, c: [1, 2]}\ngone: 1\n")
    left = write("left.yaml", "extends: base.yaml\n")
    right = write("right.yaml", "extends: base.yaml\ngone: !remove\na:\n  b: 1.0\nnew: x\n")
    assert main(["config", "diff", left, right]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a.b",
        "  - 1  (base.yaml:1:5)",
        "  + 1.0  (right.yaml:4:3)",
        "gone",
        "  - 1  (base.yaml:2:1)",
        "new",
        '  + "x"  (right.yaml:5:1)',
    ]
    assert main(["config", "diff", left, "base.yaml"]) == 0
    assert capsys.readouterr().out == "no differences\n"


def test_components_are_listed_as_a_table(capsys):
    assert main(["components"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == sorted(names)
    assert "optimizer/adam_w" in names
    assert len(names) > 50


def test_components_of_one_key_are_listed(capsys):
    assert main(["components", "--key", "optimizer"]) == 0
    assert all(line.startswith("optimizer/") for line in capsys.readouterr().out.splitlines())
    assert main(["components", "--key", "optimizr"]) == 1
    assert "did you mean 'optimizer'?" in capsys.readouterr().err


def test_components_as_json_and_markdown_tell_the_same(capsys):
    assert main(["components", "--key", "optimizer", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["variant_key"] for row in rows} >= {"adam", "adam_w"}
    assert main(["components", "--key", "optimizer", "--format", "markdown"]) == 0
    page = capsys.readouterr().out
    assert all(f"optimizer/{row['variant_key']}" in page for row in rows)


def test_output_that_nobody_reads_to_the_end_gives_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m modalities_pipeline components --format json | head -c 10"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert len(result.stdout) == 10
    assert result.stderr == ""


def test_output_survives_an_encoding_that_lacks_a_letter(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("gr\u00f6\u00dfe: 1\n", encoding="utf-8")
    command = [sys.executable, "-m", "modalities_pipeline", "config", "show", str(path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stdout.split(":")[0]) == (0, "gr\\xf6\\xdfe")
