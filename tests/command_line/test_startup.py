"""What the light words import: nothing heavy, so that they answer at once (benchmarks/config_check.py measures it)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    *("torch", "transformers", "dagster", "sentencepiece", "wandb", "rich", "matplotlib", "tokenizers", "numpy"),
    *("grpc", "sqlalchemy", "jinja2"),
}
TRAINING_CONFIG = Path(__file__).parents[2] / "configs" / "train_tiny_cpu.yaml"
CODE = """
import json, sys
from modalities_pipeline.__main__ import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print("\\n" + json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def _exit_code_and_modules(*words: str) -> tuple[int, set[str]]:
    result = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(result.stdout.splitlines()[-1])
    return code, set(modules)


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        *(f"{word} --help" for word in ("run", "warmstart", "generate_text", "convert_pytorch_to_hf_checkpoint")),
        *(f"{word} --help" for word in ("data", "data pack_encoded_data", "benchmark", "profile distributed")),
        *(f"{word} --help" for word in ("config", "config check", "components", "summary")),
    ],
)
def test_help_imports_nothing_heavy(words: str) -> None:
    code, modules = _exit_code_and_modules(*words.split())
    assert code == 0
    assert sorted(HEAVY & modules) == []
    assert sorted({"pydantic", "omegaconf"} & modules) == []


@pytest.mark.parametrize("words", [("config", "check"), ("config", "show")])
def test_looking_at_a_training_config_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    code, modules = _exit_code_and_modules(*words, str(TRAINING_CONFIG))
    assert code == 0
    assert sorted(HEAVY & modules) == []


@pytest.mark.parametrize("words", ["config explain optimizer/adam_w", "components", "components --format json"])
def test_explaining_components_imports_nothing_heavy(words: str) -> None:
    code, modules = _exit_code_and_modules(*words.split())
    assert code == 0
    assert sorted(HEAVY & modules) == []


def test_preparing_a_sweep_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("sweep: {a: [1, 2]}\n")
    paths = ["--sweep_config_path", str(tmp_path / "config.yaml"), "--output_dir", str(tmp_path / "out")]
    code, modules = _exit_code_and_modules("benchmark", "prepare_sweep_configs", *paths)
    assert code == 0
    assert sorted(HEAVY & modules) == []
