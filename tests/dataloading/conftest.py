"""Fixtures of the tests of datasets, samplers and collators."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.data.pbin import PackedFileWriter


@pytest.fixture
def write_pbin(tmp_path: Path) -> Callable[..., Path]:
    """Function (documents, token size) -> path of a new `.pbin` file."""

    def write(documents: Sequence[Sequence[int]], token_size_in_bytes: int = 2) -> Path:
        path = tmp_path / "documents.pbin"
        with PackedFileWriter(path, token_size_in_bytes) as writer:
            for document in documents:
                writer.write_document(document)
        return path

    return write


@pytest.fixture(scope="session")
def build_component() -> Callable[..., Any]:
    """Function (component_key, variant_key, fields) -> what the registry builds of them."""
    from modalities_pipeline.config.factory import ComponentFactory
    from modalities_pipeline.config.registry import Registry

    def build(component_key: str, variant_key: str, **config: Any) -> Any:
        node = {"component_key": component_key, "variant_key": variant_key, "config": config}
        return ComponentFactory(Registry()).build_component(node)

    return build
