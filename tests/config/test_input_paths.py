"""A file or folder that a component reads has to be there when a run begins, and is looked for by a check."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from modalities_pipeline.config.checking.static_check import StaticCheck
from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.input_paths import InputPath, MustExist, missing_paths
from modalities_pipeline.config.overlays import load_config
from modalities_pipeline.config.registry import Registry


class _Config(BaseModel):
    data: Annotated[InputPath, Field(description="some data")]
    file: Annotated[str, MustExist()] = "."
    model: Annotated[str, MustExist(may_be_name=True)] = "gpt2"
    output: Path = Path("nowhere")


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"data": "."}, []),
        ({"data": "nowhere"}, ["data"]),
        ({"data": ".", "file": "nowhere"}, ["file"]),
        ({"data": ".", "model": "openai/gpt2"}, []),
        ({"data": ".", "model": "./gpt2"}, ["model"]),
        ({"data": ".", "model": "../gpt2"}, ["model"]),
        ({"data": ".", "model": "~/no_such_folder_gpt2"}, ["model"]),
        ({"data": ".", "model": "outputs/tokenizers/gpt2"}, ["model"]),
        ({"data": "/nope", "file": "/nope"}, ["data", "file"]),
    ],
)
def test_only_paths_that_have_to_exist_are_looked_for(values, missing):
    assert [field for field, _ in missing_paths(_Config.model_validate(values))] == missing


@pytest.mark.parametrize("is_run", [True, False])
def test_a_missing_path_is_a_fault_of_a_run_and_a_note_of_a_check(tmp_path, is_run):
    path = tmp_path / "config.yaml"
    path.write_text("a: {component_key: thing, variant_key: plain, config: {data: nope/x.pbin}}\n", encoding="utf-8")
    document = load_config(path)
    check = StaticCheck(
        document.data, Registry([ComponentEntity("thing", "plain", "builtins:dict", _Config)]), document, is_run
    )
    check.check_parts()
    (fault,) = check.faults
    assert str(fault) == f"{path}:1:56: a.config.data: nope/x.pbin does not exist here"
    assert fault.is_note is not is_run
