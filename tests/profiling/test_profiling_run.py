"""Profiling what a YAML file describes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.profiling.run import profile_distributed

FOLDER = Path(__file__).parent
CONFIG = FOLDER / "tiny_profiling.yaml"


def test_one_process_leaves_trace_summary_and_config_in_the_experiment_folder(tmp_path):
    folder = profile_distributed(CONFIG, tmp_path / "experiments", "profile")
    assert folder == tmp_path / "experiments" / "profile"
    assert {path.name for path in folder.iterdir()} == {
        CONFIG.name,
        "profiler_trace_ranks_1_rank_0.json",
        "profiler_summary_ranks_1_rank_0.txt",
    }
    assert (folder / CONFIG.name).read_bytes() == CONFIG.read_bytes()
    events = json.loads((folder / "profiler_trace_ranks_1_rank_0.json").read_text("utf-8"))["traceEvents"]
    steps = {event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep#")}
    assert steps == {"ProfilerStep#1", "ProfilerStep#2"}
    summary = (folder / "profiler_summary_ranks_1_rank_0.txt").read_text("utf-8")
    assert "aten::addmm" in summary or "aten::mm" in summary
    assert "AdamW.step" in summary


def test_each_run_has_a_folder_of_its_own_unless_it_is_named(tmp_path):
    folder = profile_distributed(CONFIG, tmp_path)
    assert folder.parent == tmp_path
    assert len(list(folder.iterdir())) == 3


def test_a_profiler_without_steps_is_refused(tmp_path):
    content = yaml.safe_load(CONFIG.read_text())
    content["profiler"] = {"component_key": "steppable_profiler", "variant_key": "no_profiler", "config": {}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match="profiler: it needs no steps"):
        profile_distributed(tmp_path / "config.yaml", tmp_path / "experiments")


@pytest.mark.multi_process
@pytest.mark.slow
def test_of_several_processes_only_tracked_ranks_write(tmp_path):
    content = yaml.safe_load(CONFIG.read_text())
    content["profiler"]["config"]["profilers"][0]["config"]["tracked_ranks"] = [1]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    result = subprocess.run(
        [*launcher, str(FOLDER / "profile_in_processes.py"), str(tmp_path / "config.yaml"), str(tmp_path), "run"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"config.yaml", "profiler_trace_ranks_2_rank_1.json", "profiler_summary_ranks_2_rank_1.txt"}
