"""Definitions with one asset that trains through the fake launcher; `FAKE_RUN_FOLDER` says where."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from modalities_pipeline.orchestration.graph import multiprocess_executor
from modalities_pipeline.orchestration.launch import train
from modalities_pipeline.orchestration.spec import LauncherSpec
from modalities_pipeline.orchestration.training_metadata import numbers_of
from modalities_pipeline.orchestration.training_run import TrainingRun


@dg.asset
def fake_training(context: dg.AssetExecutionContext) -> Iterator[dg.AssetObservation | dg.MaterializeResult]:
    run = TrainingRun(Path(os.environ["FAKE_RUN_FOLDER"]))
    (run.folder / "step.pid").write_text(str(os.getpid()))
    program = Path(__file__).parent / "fake_launcher.py"
    command = [sys.executable, str(program), str(run.metrics_path), "120", "0", "--stubborn"]
    for line in train(run, LauncherSpec(grace_in_s=2), command):
        yield dg.AssetObservation(context.asset_key, metadata=numbers_of(line))
    yield dg.MaterializeResult()


defs = dg.Definitions(assets=[fake_training], executor=multiprocess_executor())
