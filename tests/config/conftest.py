"""Fixtures of the config tests; its presence puts this folder on the path of the tests below, for shared modules."""

from pathlib import Path

import pytest
import yaml

from modalities_pipeline.config.check import CheckReport, check_config
from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.config.resolution import ResolvedConfig, ResolverContext, resolve

COPIES = """settings:
  size: "4"
  sizes: [1, 2]
  same: ${.size}
  chain: ${settings.same}
  there: "no ${settings.size} reference"
  wrong: ${settings.nowhere}
a: {size: "${settings.size}"}
b: {config: "${a}", first: "${settings.sizes[0]}", second: "${settings.sizes.1}"}
loop: ${loop}
"""


@pytest.fixture(params=["libyaml", "pure Python"])
def write_config(request, tmp_path, monkeypatch):
    """Writes config.yaml into the working directory; each test runs with either of PyYAML's parsers."""
    if request.param == "libyaml" and not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(yaml, "__with_libyaml__", request.param == "libyaml")
    monkeypatch.chdir(tmp_path)

    def write_file(content: str | bytes) -> Path:
        path = Path("config.yaml")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def write_files(tmp_path, monkeypatch):
    """Writes files of the given names into the working directory; returns the path of the last."""
    monkeypatch.chdir(tmp_path)

    def write_texts(**texts: str) -> Path:
        for name, text in texts.items():
            path = Path(name.replace("__", "/") + ".yaml")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return path

    return write_texts


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Resolves the YAML text of a file config.yaml in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def read_text(text: str, context: ResolverContext | None = None) -> ResolvedConfig:
        Path("config.yaml").write_text(text, encoding="utf-8")
        return resolve(load_yaml(Path("config.yaml")), context)

    return read_text


@pytest.fixture
def without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths of the example configs lead nowhere from here."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def check_yaml(tmp_path):
    """Function (yaml text, options of `check_config`) -> report."""

    def check_text(text: str, **options) -> CheckReport:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return check_config(path, **options)

    return check_text


@pytest.fixture
def document(tmp_path, monkeypatch) -> ConfigDocument:
    """A config, x.yaml in the working directory, whose values are copied in every way."""
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(COPIES, encoding="utf-8")
    return load_config(Path("x.yaml"))
