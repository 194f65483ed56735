"""Imports that must never exist, so that layers stay apart and Dagster loads fast."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import modalities_pipeline

PACKAGE = Path(modalities_pipeline.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
HEAVY = {"torch", "transformers", "sentencepiece", "wandb", "matplotlib", "tokenizers"}


def _imports(module: str, top_level_only: bool = False) -> Iterator[str]:
    """Dotted names of all that a module imports; `top_level_only` leaves out functions and TYPE_CHECKING blocks."""
    pending: list[ast.AST] = [ast.parse((PACKAGE / module).read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if top_level_only and (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        ):
            continue
        pending.extend(ast.iter_child_nodes(node))


def _below(names: Iterator[str], forbidden: set[str]) -> set[str]:
    return {name for name in names if any(name == top or name.startswith(top + ".") for top in forbidden)}


@pytest.mark.parametrize("module", MODULES)
def test_modalities_itself_is_never_imported(module: str) -> None:
    assert not _below(_imports(module), {"modalities"})


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith("orchestration/") and m != "definitions.py"])
def test_only_orchestration_imports_dagster(module: str) -> None:
    assert not _below(_imports(module), {"dagster", "dagster_pipes"})


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith(("data/", "config/"))])
def test_data_and_configs_know_nothing_of_torch_transformers_or_dagster(module: str) -> None:
    assert not _below(_imports(module), {"torch", "transformers", "dagster"})


@pytest.mark.parametrize("module", [m for m in MODULES if m.endswith(("components.py", "configs.py"))])
def test_what_a_config_may_say_is_known_without_anything_heavy(module: str) -> None:
    assert not _below(_imports(module), {*HEAVY, "numpy", "dagster"})


ENTRIES = ("api.py", "__main__.py", "__init__.py", "definitions.py", "command_line/", "sweeps/")


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith(ENTRIES)])
def test_entry_modules_import_nothing_heavy_at_the_top(module: str) -> None:
    assert not _below(_imports(module, top_level_only=True), HEAVY)


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("models/")])
def test_models_know_only_maths(module: str) -> None:
    above = {"trainer", "main", "checkpointing", "reporting", "config.factory", "distributed", "orchestration"}
    assert not _below(_imports(module), {f"modalities_pipeline.{name}" for name in above})
    assert not _below(_imports(module), {"torch.distributed.fsdp", "torch.distributed.pipelining"})


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("distributed/")])
def test_parallelism_knows_no_model_maths(module: str) -> None:
    assert not _below(_imports(module), {"modalities_pipeline.models", "modalities_pipeline.trainer"})


@pytest.mark.parametrize("module", ["trainer.py", "gym.py", "evaluator.py"])
def test_the_training_loop_knows_no_device_environment_or_tracker(module: str) -> None:
    assert not _below(_imports(module), {"wandb", "transformers", "dagster"})
    source = (PACKAGE / module).read_text(encoding="utf-8")
    assert "os.environ" not in source
    assert ".cuda(" not in source


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith("reporting/")])
def test_only_reporting_imports_wandb(module: str) -> None:
    assert not _below(_imports(module), {"wandb"})


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m not in ("distributed/env.py", "config/interpolation/resolvers.py")]
)
def test_ranks_are_read_from_the_environment_in_one_place(module: str) -> None:
    source = (PACKAGE / module).read_text(encoding="utf-8")
    assert not re.search(r"(environ|getenv)[^\n]*\b(RANK|LOCAL_RANK|WORLD_SIZE)\b", source)


PBIN_MODULES = ("data/pbin.py", "data/packed/")


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith(PBIN_MODULES)])
def test_the_byte_layout_of_packed_files_is_known_in_one_place(module: str) -> None:
    assert not _below(_imports(module), {"modalities_pipeline.data.packed.pbin_layout"})
    source = (PACKAGE / module).read_text(encoding="utf-8")
    assert not re.search(r"HEADER|struct\.(un)?pack", source)


def test_loading_the_definitions_imports_nothing_heavy() -> None:
    code = f"import sys, modalities_pipeline.definitions; print(sorted({HEAVY!r} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_loading_the_definitions_gives_no_warning() -> None:
    code = "import modalities_pipeline.definitions"
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_loading_the_definitions_needs_few_packages_beyond_dagster() -> None:
    """The time itself is measured by benchmarks/definitions_import.py."""
    code = """
import sys, dagster
before = {name.partition(".")[0] for name in sys.modules}
import modalities_pipeline.definitions
after = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(*sorted(after - before))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(result.stdout.split()) <= {"modalities_pipeline", "xxhash", "orjson"}
