"""The source code of a plugin is part of a training's identity, wherever it lies."""

import sys
from pathlib import Path

import pytest

from modalities_pipeline.orchestration.plugin_sources import plugin_identities


def identities(*paths: str) -> list[str]:
    plugins = [{"component_key": "model", "variant_key": "mine", "component_path": path} for path in paths]
    found = list(plugin_identities({"plugins": plugins}))
    assert {name for name, _ in found} == {"plugins.model.mine.component_path"}
    return [identity for _, identity in found]


def test_files_count_by_content_and_name_in_them(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "folder" / "b.py"
    second.parent.mkdir()
    first.write_text("x = 1")
    second.write_text("x = 1")
    [one, other] = identities(f"{first}:A", f"{second}:A")
    assert one == other
    [renamed] = identities(f"{first}:B")
    first.write_text("x = 2")
    [changed] = identities(f"{first}:A")
    assert len({one, renamed, changed}) == 3


def test_modules_count_by_their_file_and_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "my_plugin_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    module = package / "models.py"
    module.write_text("x = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    [before] = identities("my_plugin_package.models:M")
    module.write_text("x = 2")
    [after] = identities("my_plugin_package.models:M")
    assert before != after
    assert before.startswith("M ")
    assert not [name for name in sys.modules if name.startswith("my_plugin_package")]


def test_what_is_not_there_counts_by_its_name() -> None:
    assert identities("nowhere.at_all:M", "/nowhere/m.py:M") == ["M nowhere.at_all", "M /nowhere/m.py"]
    assert list(plugin_identities({"plugins": [3, {"component_path": 3}]})) == []
    assert list(plugin_identities({})) == []
