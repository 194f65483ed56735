"""Stage instruction_data: conversations become text, indexes and packs, split as in Modalities."""

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from modalities_pipeline.api import FileExistencePolicy, pack_encoded_data
from modalities_pipeline.config.loader import load_app_config_dict
from modalities_pipeline.data.instruction_data import create_instruction_tuning_data, split_and_apply_chat_template
from modalities_pipeline.data.jsonl import LargeFileLinesReader
from modalities_pipeline.data.manifest import read_manifest
from modalities_pipeline.exceptions import (
    ConfigError,
    DatasetFormatError,
    MissingSectionError,
    UserError,
)

REFUSING_TEMPLATE = "{% for m in messages %}\n{{ raise_exception('no stop') if m.content == 'stop' }}\nx{% endfor %}"


def _folder(config_path: Path) -> tuple[Path, str]:
    config_hash = hashlib.sha256(config_path.read_bytes()).hexdigest()[:7]
    return Path(f"out/talks_{config_hash}"), config_hash


def _files(folder: Path) -> set[str]:
    """Names without records and locks."""
    return {path.name for path in folder.iterdir() if not path.name.endswith((".manifest.json", ".lock"))}


def test_conversations_are_split_and_rendered_as_by_modalities(tmp_path, monkeypatch, vectors):
    monkeypatch.chdir(tmp_path)
    shutil.copy(vectors / "chat.jsonl", tmp_path / "SRC")
    shutil.copy(vectors / "chat_config.yaml", tmp_path)
    paths = split_and_apply_chat_template(Path("chat_config.yaml"))
    assert paths == {
        partition: Path(f"DST/SRC_617967f/out_{partition}.617967f.jsonl") for partition in ("train", "val", "test")
    }
    for partition, path in paths.items():
        assert path.read_bytes() == (vectors / f"chat_{partition}.jsonl").read_bytes()
    folder = Path("DST/SRC_617967f")
    config_copy = folder / "instruction_chat_template_config.617967f.yaml"
    assert _files(folder) == {path.name for path in (*paths.values(), config_copy)}
    assert config_copy.read_bytes() == (vectors / "chat_config.yaml").read_bytes()


def test_every_partition_is_indexed_and_packed(write_talks_config, read_documents, tiny_wordlevel_dir, caplog):
    config_path = write_talks_config()
    with caplog.at_level(logging.INFO):
        create_instruction_tuning_data(config_path)
    folder, config_hash = _folder(config_path)
    endings = ("jsonl", "idx", "pbin")
    assert _files(folder) == {
        f"instruction_chat_template_config.{config_hash}.yaml",
        *(f"talk.v1_{name}.{config_hash}.{ending}" for name in ("train", "test") for ending in endings),
        *(f"pbin_config_{name}.{config_hash}.yaml" for name in ("train", "test")),
    }
    ids = {}
    for name in ("train", "test"):
        path = folder / f"talk.v1_{name}.{config_hash}.jsonl"
        entries = [json.loads(line) for line in LargeFileLinesReader(path)]
        documents = read_documents(path.with_suffix(".pbin"))
        assert all(entry["talk"][0]["from"] == "a" and entry["talk"][1]["role"] == "b" for entry in entries)
        # "a hello cat b mat é a a ... <eod>"
        assert documents == [[16, 5, 8, 17, 11, 14, *[16] * entry["id"], 1] for entry in entries]
        ids[name] = [entry["id"] for entry in entries]
        manifest = read_manifest(path)
        assert manifest.counts["num_documents"] == len(entries)
        assert manifest.counts["num_documents_in_source"] == 12
    assert sorted(ids["train"] + ids["test"]) == list(range(12))
    assert f"train {len(ids['train'])}, test {len(ids['test'])}" in caplog.text


def test_the_packing_config_beside_the_data_makes_the_same_pack_again(write_talks_config):
    config_path = write_talks_config()
    create_instruction_tuning_data(config_path)
    folder, config_hash = _folder(config_path)
    pbin_path = folder / f"talk.v1_train.{config_hash}.pbin"
    content = pbin_path.read_bytes()
    pack_config = load_app_config_dict(folder / f"pbin_config_train.{config_hash}.yaml")
    assert pack_config["settings"]["dst_path"] == str(pbin_path)
    assert pack_config["settings"]["num_cpus"] == os.cpu_count()
    pbin_path.unlink()
    pack_encoded_data(pack_config, FileExistencePolicy.ERROR)
    assert pbin_path.read_bytes() == content


def test_what_is_there_is_replaced(write_talks_config, talks_folder, read_documents):
    config_path = write_talks_config()
    create_instruction_tuning_data(config_path)
    lines = (talks_folder / "talks.jsonl").read_text("utf-8").splitlines(keepends=True)
    (talks_folder / "talks.jsonl").write_text("".join(lines[:1]) + "\n\n", "utf-8")
    create_instruction_tuning_data(config_path)
    folder, config_hash = _folder(config_path)
    full, empty = "train", "test"
    if not (folder / f"talk.v1_{full}.{config_hash}.jsonl").stat().st_size:
        full, empty = empty, full
    assert len(read_documents(folder / f"talk.v1_{full}.{config_hash}.pbin")) == 1
    assert read_manifest(folder / f"talk.v1_{full}.{config_hash}.jsonl").counts["num_blank_lines_in_source"] == 2
    # a partition without conversations stays as an empty file, and nothing of an earlier run with it
    assert {name for name in _files(folder) if empty in name} == {f"talk.v1_{empty}.{config_hash}.jsonl"}


def test_without_a_split_everything_is_training_data_and_without_a_packing_config_nothing_is_packed(write_talks_config):
    config_path = write_talks_config({"split_config": None, "pbin_creation_config_file_path": None})
    create_instruction_tuning_data(config_path)
    folder, config_hash = _folder(config_path)
    assert _files(folder) == {
        f"instruction_chat_template_config.{config_hash}.yaml",
        f"talk.v1_train.{config_hash}.jsonl",
        f"talk.v1_train.{config_hash}.idx",
    }
    assert (
        len(
            LargeFileLinesReader(
                folder / f"talk.v1_train.{config_hash}.jsonl", folder / f"talk.v1_train.{config_hash}.idx"
            )
        )
        == 12
    )


def test_partitions_depend_on_neither_the_global_generator_nor_the_locale(write_talks_config, monkeypatch):
    import random

    config_path = write_talks_config()
    monkeypatch.setenv("LC_ALL", "C")
    contents = []
    for seed in (1, 2):
        random.seed(seed)
        state = random.getstate()
        contents.append({name: path.read_bytes() for name, path in split_and_apply_chat_template(config_path).items()})
        assert random.getstate() == state
    assert contents[0] == contents[1]
    assert "é".encode() in contents[0]["train"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"talk": [{"role": "x", "content": ""}]}', r"role_mapping does not know role 'x' \(it has: h, g\)"),
        ('{"talk": [{"from": ["h"]}]}', "role_mapping does not know from"),
        ('{"text": "x", "id": 1}', r"no key 'talk' \(found: text, id\)"),
        ('{"talk": "x"}', "'talk' is not a list of objects"),
        ('{"talk": ["x"]}', "'talk' is not a list of objects"),
        ("[1]", "not a JSON object"),
        ('{"talk": [', "not valid JSON"),
        ('{"talk": [{"role": "h", "content": "\\ud800"}]}', "half a surrogate pair"),
        (b'{"talk": "\xff"}', "byte 10 of the line is not UTF-8"),
        ('{"talk": [{"role": "h", "content": "stop"}]}', "cannot render it: line 2 of the template: no stop"),
    ],
)
def test_a_bad_line_is_named_and_leaves_everything_as_it_was(line, message, write_talks_config, talks_folder):
    config_path = write_talks_config({"split_config": None}, jinja2_chat_template=REFUSING_TEMPLATE)
    (path,) = split_and_apply_chat_template(config_path).values()
    content = path.read_bytes()
    lines = (talks_folder / "talks.jsonl").read_bytes().splitlines(keepends=True)
    bad = line if isinstance(line, bytes) else line.encode()
    (talks_folder / "talks.jsonl").write_bytes(b"".join([*lines[:3], b"\n", bad, b"\n", *lines[3:]]))
    with pytest.raises(DatasetFormatError, match=rf"talks\.jsonl, line 5: .*{message}"):
        create_instruction_tuning_data(config_path)
    assert path.read_bytes() == content
    assert not [name for name in _files(path.parent) if name.endswith(".tmp")]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_source_without_conversations_is_refused(content, write_talks_config, talks_folder):
    """B010."""
    (talks_folder / "talks.jsonl").write_text(content)
    config_path = write_talks_config()
    with pytest.raises(DatasetFormatError, match=r"talks\.jsonl holds no conversation"):
        create_instruction_tuning_data(config_path)
    assert _files(_folder(config_path)[0]) == set()


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("settings:", "setings:", MissingSectionError, r"pack\.yaml: there is no section 'settings'"),
        ("tokenizer:\n", "tokeniser:\n", MissingSectionError, r"pack\.yaml: there is no section 'tokenizer'"),
        ("jq_pattern", "jqpattern", ConfigError, r"pack\.yaml.*jq_pattern"),
        (".chat", ".chat |", ConfigError, "jq"),
        ("processing_batch_size", "num_things", ConfigError, "processing_batch_size: is missing"),
        ("<eod>", "<end>", UserError, "<end>"),
    ],
)
def test_a_packing_config_that_cannot_work_is_refused_before_anything_is_written(
    old, new, error, message, write_talks_config, talks_folder
):
    config_path = write_talks_config()
    pack_config = talks_folder / "pack.yaml"
    pack_config.write_text(pack_config.read_text("utf-8").replace(old, new), "utf-8")
    with pytest.raises(error, match=message):
        create_instruction_tuning_data(config_path)
    assert not Path("out").exists()


def test_memory_does_not_grow_with_the_source(write_talks_config, talks_folder):
    import tracemalloc

    line = json.dumps({"talk": [{"role": "h", "content": "x" * 1000}]}) + "\n"
    (talks_folder / "talks.jsonl").write_text(line * 3000)
    config_path = write_talks_config({"split_config": None, "pbin_creation_config_file_path": None})
    tracemalloc.start()
    split_and_apply_chat_template(config_path)
    _, peak_in_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_in_bytes < 2_000_000 < (talks_folder / "talks.jsonl").stat().st_size
