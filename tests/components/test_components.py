"""Every row of the table of components is built from YAML, and is what the row says that it is."""

from pathlib import Path

import pytest
import torch
from building import CONFIGS, Row, build_everything, check_interfaces, load, rows_in

from modalities_pipeline.config.components import COMPONENTS
from modalities_pipeline.exceptions import ConfigError

IN_ONE_PROCESS = ["models", "losses", "norms", "optim", "tokenizers", "data", "reporting", "profiling"]
IN_ONE_PROCESS += ["number_conversion", "checkpointing", "debugging", "training/coca"]
ON_A_GPU = ["memory_profiling"]
IN_A_PROCESS_GROUP = ["fsdp1", "fsdp2"]
IN_TWO_PROCESSES = ["fsdp1", "fsdp2", "tensor_parallel", "pipeline"]


def _build(name: str, data: Path) -> None:
    config = load(CONFIGS / f"{name}.yaml", data)
    _, built = build_everything(config)
    check_interfaces(built)
    assert {row for row, _ in built} == rows_in(config)


@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_components_are_built_without_a_process_group(name, data):
    _build(name, data)


@pytest.mark.parametrize("name", ON_A_GPU)
def test_components_that_need_a_gpu_are_built_where_torch_sees_one(name, data, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    _build(name, data)


@pytest.mark.parametrize("name", IN_A_PROCESS_GROUP)
@pytest.mark.usefixtures("process_group")
def test_sharded_components_are_built_in_a_process_group_of_one(name, data):
    _build(name, data)


@pytest.mark.multi_process
def test_components_of_several_processes_are_built_by_two(run_distributed, data):
    script = Path(__file__).parent / "build_in_processes.py"
    run_distributed(script, 2, str(data), *(f"{name}.yaml" for name in IN_TWO_PROCESSES))


def test_stages_that_a_schedule_cannot_have_are_told_before_anything_is_built(data, monkeypatch):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    key = "staged_pipeline.config.pp_schedule_name"
    config = load(CONFIGS / "pipeline.yaml", data, {key: "GPipe"})
    with pytest.raises(ConfigError, match=f"{key}: GPipe needs 1 stage on each rank"):
        build_everything(config)


def test_no_row_of_the_table_is_left_out(data):
    built: set[Row] = set()
    for name in (*IN_ONE_PROCESS, *ON_A_GPU, *IN_A_PROCESS_GROUP, *IN_TWO_PROCESSES):
        built |= rows_in(load(CONFIGS / f"{name}.yaml", data))
    assert built == {(entity.component_key, entity.variant_key) for entity in COMPONENTS}
