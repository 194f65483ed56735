"""A config names components of the user's own; what is wrong with them is told like any other fault."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.config.plugins import add_plugins, config_of
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.resolution import resolve
from modalities_pipeline.exceptions import ConfigError

CODE = """
from pydantic import BaseModel

class Scaler:
    def __init__(self, factor: float, offset: int = 1):
        self.factor, self.offset = factor, offset

class ScalerConfig(BaseModel):
    factor: float
    offset: int = 7

def greedy(size: int, **kwargs):
    return size

not_callable = 3
"""


@pytest.fixture(autouse=True)
def _forget_modules(monkeypatch):
    """Modules and folders that a test imports from are gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def plug(tmp_path):
    """Function (plugins as YAML, file name of the code) -> (registry with the plugins, their faults as text)."""

    def plug_in(plugins: str, file_name: str = "my_scalers.py") -> tuple[Registry, list[str]]:
        (tmp_path / file_name).write_text(CODE, encoding="utf-8")
        path = tmp_path / "config.yaml"
        path.write_text(f"plugins:\n{textwrap.indent(textwrap.dedent(plugins), '  ')}\n", encoding="utf-8")
        document = load_config(path)
        registry = Registry([])
        faults = add_plugins(registry, resolve(document).data["plugins"], document)
        return registry, [str(fault).removeprefix(f"{path}:") for fault in faults]

    return plug_in


def _entry(**keys: str) -> str:
    entry = {"component_key": "scaler", "variant_key": "mine", **keys}
    return f"- {{{', '.join(f'{key}: {value!r}' for key, value in entry.items())}}}"


def _build(registry: Registry, config: dict):
    node = {"component_key": "scaler", "variant_key": "mine", "config": config}
    return ComponentFactory(registry).build_component(node)


def test_a_class_in_a_file_beside_the_config_needs_no_config_class(plug):
    registry, faults = plug(_entry(component_path="my_scalers.py:Scaler"))
    assert faults == []
    scaler = _build(registry, {"factor": 2})
    assert (scaler.factor, scaler.offset) == (2.0, 1)
    with pytest.raises(ConfigError, match=r"component.config.facto: unknown key; did you mean 'factor'\?"):
        _build(registry, {"facto": 2})
    with pytest.raises(ConfigError, match=r"component.config.factor: has to be a number \(given: 'a'\)"):
        _build(registry, {"factor": "a"})


def test_a_config_class_of_the_user_refuses_unknown_keys_too(plug):
    """B077"""
    registry, faults = plug(_entry(component_path="my_scalers.py:Scaler", config_path="my_scalers.py:ScalerConfig"))
    assert faults == []
    assert _build(registry, {"factor": 2}).offset == 7
    with pytest.raises(ConfigError, match=r"component.config.ofset: unknown key; did you mean 'offset'\?"):
        _build(registry, {"factor": 2, "ofset": 2})


def test_modules_are_named_by_their_import_path(plug, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    registry, faults = plug(_entry(component_path="my_scalers:Scaler"))
    assert faults == []
    assert _build(registry, {"factor": 2}).factor == 2


def test_a_file_is_relative_to_the_file_that_names_it(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "near_base.py").write_text(CODE, encoding="utf-8")
    base = f"plugins:\n{textwrap.indent(_entry(component_path='near_base.py:Scaler'), '  ')}\n"
    (tmp_path / "base" / "base.yaml").write_text(base, encoding="utf-8")
    (tmp_path / "top.yaml").write_text("extends: base/base.yaml\n", encoding="utf-8")
    document = load_config(tmp_path / "top.yaml")
    assert add_plugins(Registry([]), document.data["plugins"], document) == []


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        (
            {"component_path": "my_scalers.py:Scalr"},
            "component_path: there is no 'Scalr' in my_scalers.py; did you mean 'Scaler'?",
        ),
        ({"component_path": "my_scalers.py:not_callable"}, "is an int; it has to be a class or a function"),
        (
            {"component_path": "my_scalers.py:greedy"},
            "greedy takes **kwargs, which cannot be a key of a config; give a config_path",
        ),
        ({"component_path": "nowhere.py:Scaler"}, "component_path: there is no file "),
        (
            {"component_path": "no_such_module_here.models:Scaler"},
            "there is no module no_such_module_here.models; install it",
        ),
        ({"component_path": "Scaler"}, "plugins.0.component_path: has to match the pattern"),
        (
            {"component_path": "my_scalers.py:Scaler", "config_path": "my_scalers.py:Scaler"},
            "plugins.0.config_path: my_scalers.py:Scaler has to be a subclass of pydantic's BaseModel",
        ),
        ({"component_pth": "my_scalers.py:Scaler"}, "unknown key; did you mean 'component_path'?"),
    ],
)
def test_each_mistake_is_one_fault_with_its_place(plug, keys, fault):
    registry, (line,) = plug(_entry(**keys))
    assert line.startswith("2:")
    assert fault in line
    assert registry.entities() == []


def test_all_faults_are_found_and_right_plugins_are_kept(plug):
    registry, faults = plug(
        "\n".join([_entry(component_path="x.py:A"), _entry(component_path="my_scalers.py:Scaler"), "- 5"])
    )
    assert [fault.partition(":")[0] for fault in faults] == ["2", "4"]
    assert len(registry.entities()) == 1


def test_an_error_inside_of_the_module_is_told(plug, tmp_path):
    (tmp_path / "broken_scalers.py").write_text("import no_such_module_here\n", encoding="utf-8")
    _, (line,) = plug(_entry(component_path="broken_scalers.py:Scaler"))
    assert "broken_scalers.py cannot be imported: ModuleNotFoundError: No module named 'no_such_module_here'" in line


def test_plugins_have_to_be_a_list(plug):
    _, (line,) = plug("a: 1")
    assert line == "1:1: plugins: has to be a list of components"


def test_a_file_whose_name_is_taken_is_imported_all_the_same(plug):
    registry, faults = plug(_entry(component_path="json.py:Scaler"), "json.py")
    assert faults == []
    assert _build(registry, {"factor": 2}).factor == 2


def test_objects_of_a_file_can_be_sent_to_processes_that_are_started_anew(plug, tmp_path):
    """Data loader workers and ranks import the module by its name."""
    plug(_entry(component_path="my_scalers.py:Scaler"))
    path = [entry for entry in sys.path if Path(entry) == tmp_path]
    code = "import pickle, my_scalers; print(pickle.loads(pickle.dumps(my_scalers.Scaler(2))).factor)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip() == "2"


def test_types_that_pydantic_does_not_know_are_not_checked():
    def build(size: int, anything, maybe: "NoSuchName" = None):  # type: ignore[name-defined]  # noqa: F821
        return size

    config = config_of(build)
    assert config.model_validate({"size": 1, "anything": object()}).maybe is None


def test_a_plugin_that_ends_the_program_is_a_fault(plug, tmp_path):
    (tmp_path / "my_exit.py").write_text("import sys\nsys.exit(3)\n", encoding="utf-8")
    registry, (line,) = plug(_entry(component_path="my_exit.py:X"))
    assert line.startswith("2:")
    assert "plugins.0.component_path: my_exit.py cannot be imported: SystemExit: 3" in line
    assert registry.is_broken("scaler", "mine")


@pytest.mark.parametrize("entry", [{"component_path": "x.py"}, {"unknown_key": "1"}])
def test_a_faulty_entry_causes_no_faults_where_it_is_used(plug, entry):
    registry, _ = plug(_entry(**entry))
    assert registry.is_broken("scaler", "mine")
