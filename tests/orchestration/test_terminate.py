""" "Terminate" in the Dagster UI leaves no process behind."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.orchestration.metrics_file import read_metrics
from modalities_pipeline.orchestration.supervise import living_descendants

pytestmark = pytest.mark.multi_process

LAUNCH = """
mutation Launch($selector: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $selector, mode: "default"}) {
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
TERMINATE = "mutation Terminate($id: String!) { terminateRun(runId: $id) { __typename } }"
STATUS = "query Status($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"

Query = Callable[..., Any]


@pytest.fixture
def webserver(
    dagster_environment: dict[str, str], dagster_home: Path, tmp_path: Path, wait_for: Callable[..., None]
) -> Iterator[Query]:
    """A real web server for the fake training; gives a function that sends it GraphQL."""
    with (dagster_home / "dagster.yaml").open("a") as file:  # no daemon here that would take runs from a queue
        file.write("\nrun_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def query(text: str, **variables: object) -> Any:
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["data"]

    def answers() -> bool:
        try:
            return bool(query("{ version }"))
        except (urllib.error.URLError, ConnectionError):
            return False

    server = subprocess.Popen(
        [sys.executable, "-m", "dagster_webserver", "-m", "fake_training_definitions", "-p", str(port)],
        env={**dagster_environment, "FAKE_RUN_FOLDER": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(answers, 60, "the web server answers")
        yield query
    finally:
        server.terminate()
        server.wait(30)


def test_terminating_a_run_ends_all_of_its_processes(
    webserver: Query, tmp_path: Path, wait_for: Callable[..., None], alive: Callable[[list[int]], list[int]]
) -> None:
    """B079, B080: cancelled run leaves the child process running, or hangs in CANCELING."""
    selector = {
        "repositoryLocationName": "fake_training_definitions",
        "repositoryName": "__repository__",
        "pipelineName": "__ASSET_JOB",
    }
    run_id = webserver(LAUNCH, selector=selector)["launchRun"]["run"]["runId"]
    wait_for(lambda: len(read_metrics(tmp_path / "metrics.jsonl")) > 5, 90, "training runs")
    step = int((tmp_path / "step.pid").read_text())
    tree = [step, *living_descendants(step)]
    assert len(tree) >= 5  # step, supervisor, launcher, two workers
    assert os.getpid() not in tree
    assert webserver(TERMINATE, id=run_id)["terminateRun"]["__typename"] == "TerminateRunSuccess"
    wait_for(lambda: not alive(tree), 30, "the processes end")
    wait_for(lambda: webserver(STATUS, id=run_id)["runOrError"]["status"] == "CANCELED", 30, "the run is cancelled")
