"""The words of `data`: each does what its function does, and one clear message tells what is wrong."""

import json
import os

import pytest

from modalities_pipeline.__main__ import main
from modalities_pipeline.data.jsonl import LargeFileLinesReader
from modalities_pipeline.data.pbin import PackedFile


@pytest.fixture
def raw_file(tmp_path):
    path = tmp_path / "raw.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("aa b", "c", "a b c")), encoding="utf-8")
    return path


@pytest.fixture
def pack(raw_file, tmp_path, tiny_wordlevel_dir):
    """Function name -> path of the packed raw file."""

    def pack_as(name: str):
        target = tmp_path / f"{name}.pbin"
        config = tmp_path / f"{name}.yaml"
        config.write_text(
            f"""settings:
  src_path: {raw_file}
  dst_path: {target}
  index_path: {raw_file.with_suffix(".idx")}
  jq_pattern: .text
  num_cpus: ${{node_env:num_cpus}}
  eod_token: <eod>
  processing_batch_size: 2
  raw_samples_queue_size: 10
  processed_samples_queue_size: 10
tokenizer:
  component_key: tokenizer
  variant_key: pretrained_hf_tokenizer
  config: {{pretrained_model_name_or_path: {tiny_wordlevel_dir}}}
""",
            encoding="utf-8",
        )
        assert main(["data", "pack_encoded_data", str(config)]) == 0
        return target

    return pack_as


def test_data_commands_lead_from_text_to_one_packed_file(raw_file, pack, tmp_path):
    assert main(["data", "create_raw_index", str(raw_file)]) == 0
    assert len(LargeFileLinesReader(raw_file)) == 3
    first = pack("first")
    names = tmp_path / "names.txt"
    names.write_text("first.jsonl\n", encoding="utf-8")
    for chunk in ("0", "1"):
        options = ["--chunk_id", chunk, "--num_chunks", "2", "--global_seed", "1"]
        paths = ["--input_file_list_path", str(names), "--input_data_root_path", str(tmp_path)]
        output = ["--output_chunk_file_path", str(tmp_path / f"chunk_{chunk}.pbin")]
        assert main(["data", "create_shuffled_dataset_chunk", *paths, *output, *options]) == 0
    chunks = [str(tmp_path / f"chunk_{chunk}.pbin") for chunk in (0, 1)]
    assert main(["data", "merge_packed_data", *chunks, str(tmp_path / "merged.pbin")]) == 0
    with PackedFile(tmp_path / "merged.pbin") as merged, PackedFile(first) as packed:
        documents = [sorted(tuple(file.document(i)) for i in range(3)) for file in (merged, packed)]
    assert documents[0] == documents[1]


def test_a_misspelt_setting_is_told_with_its_line(tmp_path, capsys, tiny_wordlevel_dir):
    """B077"""
    config = tmp_path / "pack.yaml"
    config.write_text(
        f"""settings:
  src_path: a.jsonl
  dst_path: a.pbin
  jq_patern: .text
  eod_token: <eod>
tokenizer:
  component_key: tokenizer
  variant_key: pretrained_hf_tokenizer
  config: {{pretrained_model_name_or_path: {tiny_wordlevel_dir}}}
""",
        encoding="utf-8",
    )
    assert main(["data", "pack_encoded_data", str(config)]) == 1
    error = capsys.readouterr().err
    assert f"{config}:4:3: settings.jq_patern: unknown key; did you mean 'jq_pattern'?" in error
    assert "settings.jq_pattern" not in error  # it is the same mistake
    assert f"{config}:1:1: settings.processing_batch_size: is missing" in error


def test_an_existing_output_is_an_error_unless_the_policy_says_otherwise(raw_file, capsys):
    """B085"""
    command = ["data", "create_raw_index", str(raw_file)]
    assert main(command) == 0
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("Error: ")
    assert "raw.idx exists already" in error
    assert main([*command, "--file_existence_policy", "skip"]) == 0
    assert main([*command, "--file_existence_policy", "override"]) == 0


def test_shuffles_keep_every_document_and_line(raw_file, pack, tmp_path):
    assert main(["data", "create_raw_index", str(raw_file)]) == 0
    packed, shuffled = pack("packed"), tmp_path / "shuffled.pbin"
    paths = ["--input_data_path", str(packed), "--output_data_path", str(shuffled)]
    assert main(["data", "shuffle_tokenized_data", *paths, "--seed", "1", "--batch_size", "2"]) == 0
    with PackedFile(packed) as before, PackedFile(shuffled) as after:
        documents = [sorted(tuple(file.document(i)) for i in range(3)) for file in (before, after)]
    assert documents[0] == documents[1]
    paths = ["--input_data_path", str(raw_file), "--output_data_path", str(tmp_path / "shuffled.jsonl")]
    assert main(["data", "shuffle_jsonl_data", *paths, "--seed", "1"]) == 0
    assert sorted((tmp_path / "shuffled.jsonl").read_text().splitlines()) == sorted(raw_file.read_text().splitlines())


def test_chunks_of_lines_hold_every_line_once(raw_file, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("raw.jsonl\n", encoding="utf-8")
    lines = []
    for chunk in ("0", "1"):
        output = tmp_path / f"chunk_{chunk}.jsonl"
        paths = ["--input_file_list_path", str(names), "--input_data_root_path", str(tmp_path)]
        options = ["--output_chunk_file_path", str(output), "--chunk_id", chunk, "--num_chunks", "2"]
        assert main(["data", "create_shuffled_jsonl_chunk", *paths, *options]) == 0
        lines += output.read_text().splitlines()
    assert sorted(lines) == sorted(raw_file.read_text().splitlines())


def test_merging_onto_an_existing_file_is_wrong_usage(tmp_path, capsys):
    (tmp_path / "target.pbin").write_text("old")
    with pytest.raises(SystemExit) as exit_information:
        main(["data", "merge_packed_data", "a.pbin", str(tmp_path / "target.pbin")])
    assert exit_information.value.code == 2
    assert "target.pbin exists already" in capsys.readouterr().err
    assert (tmp_path / "target.pbin").read_text() == "old"


def test_lines_that_are_no_json_can_be_left_out_of_an_index(raw_file, capsys):
    """B005"""
    raw_file.write_text(raw_file.read_text() + '{"text": "cut off', encoding="utf-8")
    command = ["data", "create_raw_index", str(raw_file)]
    assert main(command) == 1
    assert "on_bad_sample: skip" in capsys.readouterr().err
    assert main([*command, "--on_bad_sample", "skip"]) == 0
    assert len(LargeFileLinesReader(raw_file)) == 3


def test_a_folder_in_the_place_of_a_file_is_no_fault_of_the_program(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "create_raw_index", "."]) == 1
    assert "is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".pbin", ".jsonl"])
@pytest.mark.parametrize("output", ["names.txt", "./names.txt", "in"])
def test_a_chunk_never_replaces_the_list_of_its_inputs_or_one_of_them(suffix, output, tmp_path, capsys):
    names, source = tmp_path / "names.txt", tmp_path / f"in{suffix}"
    source.write_text("{}\n")
    names.write_text(f"in{suffix}\n")
    target = f"in{suffix}" if output == "in" else output
    command = "create_shuffled_dataset_chunk" if suffix == ".pbin" else "create_shuffled_jsonl_chunk"
    paths = ["--input_file_list_path", str(names), "--input_data_root_path", str(tmp_path)]
    options = ["--chunk_id", "0", "--num_chunks", "1", "--file_existence_policy", "override"]
    assert main(["data", command, *paths, *options, "--output_chunk_file_path", f"{tmp_path}/{target}"]) == 1
    assert "is also an input" in capsys.readouterr().err
    assert (names.read_text(), source.read_text()) == (f"in{suffix}\n", "{}\n")


@pytest.mark.parametrize("name", ["pack.yaml", "out.manifest.json", ".out.lock"])
def test_a_pack_never_replaces_its_config(name, tmp_path, capsys):
    config = tmp_path / name
    dst_path = tmp_path / ("pack.yaml" if name == "pack.yaml" else "out")
    config.write_text(f"settings:\n  dst_path: {dst_path}\ntokenizer: {{}}\n")
    content = config.read_text()
    assert main(["data", "pack_encoded_data", str(config), "--file_existence_policy", "override"]) == 1
    assert "is also an input" in capsys.readouterr().err
    assert config.read_text() == content


@pytest.mark.parametrize("command", [["pack_encoded_data"], ["prepare_instruction_tuning_data", "--config_file_path"]])
def test_a_pipe_in_the_place_of_a_config_is_refused_at_once(command, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert main(["data", *command, str(tmp_path / "pipe")]) == 1
    assert "pipe is neither a file nor a folder" in capsys.readouterr().err
