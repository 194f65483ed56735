"""A config of several files becomes one that means the same."""

from pathlib import Path

import yaml

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.config.yaml_files.self_contained import self_contained_data, self_contained_text


def test_the_text_holds_what_is_extended_and_overridden_and_keeps_references(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("a: {b: 1, c: '${a.b}'}\nname: '1e-5'\n")
    (tmp_path / "top.yaml").write_text("extends: base.yaml\na: {d: 1e-4}\n")
    document = load_config(tmp_path / "top.yaml", [Override("a.b", 2)])
    alone = tmp_path / "elsewhere" / "alone.yaml"
    alone.parent.mkdir()
    alone.write_text(self_contained_text(document, "top.yaml"))
    assert load_yaml(alone).data == {"a": {"b": 2, "c": "${a.b}", "d": 1e-4}, "name": "1e-5"}
    assert yaml.safe_load(alone.read_text())["name"] == "1e-5"
    assert alone.read_text().startswith("# top.yaml, with all that it extends")


def test_files_of_plugins_are_those_beside_the_file_that_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    entry = "{component_key: model, variant_key: a, component_path: 'code/m.py:M', config_path: 'my.module:Config'}"
    (folder / "base.yaml").write_text(f"plugins: [{entry}]\n")
    (tmp_path / "top.yaml").write_text("extends: base/base.yaml\nplugins: [{component_path: 'n.py:N'}, 3]\n")
    plugins = self_contained_data(load_config(tmp_path / "top.yaml"))["plugins"]
    assert plugins[0]["component_path"] == f"{folder}/code/m.py:M"
    assert plugins[0]["config_path"] == "my.module:Config"
    assert plugins[1] == {"component_path": f"{tmp_path}/n.py:N"}
    assert plugins[2] == 3  # for validation to name
