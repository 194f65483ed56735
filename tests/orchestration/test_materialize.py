"""The policy's table, through a real asset: what is built, what is reused, what is kept, and what is reported."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, read_manifest
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import CheckpointingError, UserError
from modalities_pipeline.orchestration import materialize as materialize_module
from modalities_pipeline.orchestration.materialize import (
    Job,
    PolicyResource,
    code_version,
    materialize,
    up_to_date_check,
    user_errors_as_failures,
)

KEY = dg.AssetKey("numbers")


class Pipeline:
    """One asset with two outputs whose settings can be changed; counts its builds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, dict[str, Any]] = {"a": {"factor": 1}, "b": {"factor": 1}}
        self.built: list[str] = []

    def output(self, name: str) -> Path:
        return self.folder / name

    def job(self, name: str) -> Job:
        identity = StageIdentity("numbers", "1", self.settings[name], {})

        def build(policy: FileExistencePolicy) -> Manifest | None:
            self.built.append(name)
            text = f"{name} x {self.settings[name]['factor']}"
            return produce(self.output(name), [], policy, lambda: identity, lambda path: _write(path, text))

        return Job(name, identity, self.output(name), build)

    def run(self, instance: dg.DagsterInstance, policy: str = "auto", tags: dict[str, str] | None = None) -> Any:
        @dg.asset(key=KEY, check_specs=[up_to_date_check(KEY)])
        @user_errors_as_failures()
        def numbers(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
            jobs = [self.job(name) for name in self.settings]
            return materialize(context, policy, self.folder / "lock", jobs)

        self.built.clear()
        return dg.materialize(
            [numbers],
            instance=instance,
            resources={"policy": PolicyResource()},
            run_config={"resources": {"policy": {"config": {"policy": policy}}}},
            tags=tags,
            raise_on_error=False,
        )


def _write(path: Path, text: str) -> BuildResult:
    path.write_text(text)
    return BuildResult(counts={"num_characters": len(text), "num_characters_per_s": 10.0})


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


@pytest.fixture
def run(pipeline: Pipeline) -> Callable[..., Any]:
    """Materialize with a policy; gives the result."""
    instance = dg.DagsterInstance.ephemeral()
    return lambda policy="auto", tags=None: pipeline.run(instance, policy, tags)


def build_in_some_process(folder: Path, name: str, policy: FileExistencePolicy) -> Manifest | None:
    identity = StageIdentity("numbers", "1", {}, {})
    return produce(folder / name, [], policy, lambda: identity, lambda path: _write(path, str(os.getpid())))


@pytest.mark.multi_process
@pytest.mark.parametrize(("num_workers", "is_parallel"), [(1, False), (2, True)])
def test_many_outputs_are_built_in_as_many_processes_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int, is_parallel: bool
) -> None:
    monkeypatch.setattr(materialize_module, "_MANY_JOBS", 3)

    @dg.asset(key=KEY, check_specs=[up_to_date_check(KEY)])
    def numbers(context: dg.AssetExecutionContext, policy: PolicyResource) -> dg.MaterializeResult:
        jobs = [
            Job(
                name,
                StageIdentity("numbers", "1", {}, {}),
                tmp_path / name,
                partial(build_in_some_process, tmp_path, name),
            )
            for name in "abc"
        ]
        return materialize(context, policy, tmp_path / "lock", jobs)

    result = dg.materialize([numbers], resources={"policy": PolicyResource(num_workers=num_workers)})
    assert metadata_of(result)["cache_misses"] == 3
    assert ((tmp_path / "a").read_text() != str(os.getpid())) is is_parallel


def metadata_of(result: Any) -> dict[str, Any]:
    [event] = result.asset_materializations_for_node("numbers")
    return {name: value.value for name, value in event.metadata.items()}


def data_version_of(result: Any) -> str:
    [event] = result.asset_materializations_for_node("numbers")
    return event.tags["dagster/data_version"]


def check_of(result: Any) -> dg.AssetCheckEvaluation:
    [evaluation] = result.get_asset_check_evaluations()
    return evaluation


def make_missing(pipeline: Pipeline) -> None:
    pipeline.output("a").unlink()


def make_outdated(pipeline: Pipeline) -> None:
    pipeline.settings["a"] = {"factor": 2}


def make_damaged(pipeline: Pipeline) -> None:
    pipeline.output("a").write_text("a x ?")


def touch(pipeline: Pipeline) -> None:
    pipeline.output("a").touch()


@pytest.mark.parametrize(
    ("change", "policy", "built"),
    [
        (None, "auto", []),
        (None, "error", []),
        (None, "skip", []),
        (None, "override", ["a", "b"]),
        (touch, "auto", []),
        (make_missing, "auto", ["a"]),
        (make_missing, "error", ["a"]),
        (make_missing, "skip", ["a"]),
        (make_missing, "override", ["a", "b"]),
        (make_outdated, "auto", ["a"]),
        (make_outdated, "skip", []),
        (make_outdated, "override", ["a", "b"]),
        (make_damaged, "auto", ["a"]),
        (make_damaged, "skip", []),
        (make_damaged, "override", ["a", "b"]),
    ],
)
def test_the_policy_decides_what_is_built(
    pipeline: Pipeline,
    run: Callable[..., Any],
    change: Callable[[Pipeline], None] | None,
    policy: str,
    built: list[str],
) -> None:
    assert run().success
    assert pipeline.built == ["a", "b"]
    if change is not None:
        change(pipeline)
    result = run(policy)
    assert result.success
    assert pipeline.built == built
    assert metadata_of(result)["cache_misses"] == len(built) or policy == "skip"
    assert check_of(result).passed == (policy != "skip" or change in (None, make_missing))


def test_policy_error_names_what_changed_and_builds_nothing(pipeline: Pipeline, run: Callable[..., Any]) -> None:
    run()
    make_outdated(pipeline)
    result = run("error")
    assert not result.success
    assert not pipeline.built
    message = str(result.failure_data_for_node("numbers").user_failure_data.description)
    assert "setting factor: 1 -> 2" in message
    assert pipeline.output("a").read_text() == "a x 1"


def test_a_kept_output_fails_the_check_with_the_reason_and_does_not_block(
    pipeline: Pipeline, run: Callable[..., Any]
) -> None:
    run()
    make_outdated(pipeline)
    evaluation = check_of(run("skip"))
    assert not evaluation.passed
    assert evaluation.severity is dg.AssetCheckSeverity.WARN
    assert evaluation.metadata["kept"].value == {"a": "setting factor: 1 -> 2"}


def test_the_data_version_follows_the_bytes_and_nothing_else(pipeline: Pipeline, run: Callable[..., Any]) -> None:
    first = data_version_of(run())
    assert data_version_of(run()) == first
    assert data_version_of(run("override")) == first
    make_outdated(pipeline)
    assert data_version_of(run()) != first


def test_a_cache_hit_is_reported_with_the_seconds_it_saved(pipeline: Pipeline, run: Callable[..., Any]) -> None:
    built, reused = metadata_of(run()), metadata_of(run())
    assert (built["cache_hits"], built["cache_misses"]) == (0, 2)
    assert (reused["cache_hits"], reused["cache_misses"]) == (2, 0)
    manifests = [read_manifest(pipeline.output(name)) for name in "ab"]
    assert reused["seconds_saved"] == round(sum(manifest.duration_in_s for manifest in manifests if manifest), 2)
    assert reused["num_characters"] == built["num_characters"] == 10
    assert len(reused["outputs"]) == 2


def test_rates_are_averaged_and_counts_added(run: Callable[..., Any]) -> None:
    metadata = metadata_of(run())
    assert metadata["num_characters"] == 10
    assert metadata["num_characters_per_s"] == pytest.approx(10.0)


def test_a_runs_tag_changes_the_policy_of_all_its_assets(pipeline: Pipeline, run: Callable[..., Any]) -> None:
    run()
    result = run(tags={"modalities_pipeline/policy": "override"})
    assert pipeline.built == ["a", "b"]
    assert metadata_of(result)["policy"] == "override"


def test_an_unknown_policy_in_a_tag_is_refused_with_the_valid_ones(run: Callable[..., Any]) -> None:
    result = run(tags={"modalities_pipeline/policy": "always"})
    message = str(result.failure_data_for_node("numbers").user_failure_data.description)
    assert "is 'always'. Use one of: auto, error, skip, override" in message


def test_a_users_error_fails_a_step_with_its_message_alone_and_without_retries() -> None:
    with pytest.raises(dg.Failure) as caught, user_errors_as_failures():
        raise UserError("data.jsonl, line 3: no JSON.")
    assert caught.value.description == "data.jsonl, line 3: no JSON."
    assert not caught.value.allow_retries


def test_any_error_raised_on_purpose_fails_a_step_with_its_message_alone() -> None:
    with pytest.raises(dg.Failure) as caught, user_errors_as_failures():
        raise CheckpointingError("The checkpoint x could not be written: disc full")
    assert caught.value.description == "The checkpoint x could not be written: disc full"
    assert caught.value.allow_retries
    with pytest.raises(ZeroDivisionError), user_errors_as_failures():
        raise ZeroDivisionError  # a bug keeps its traceback


def test_the_code_version_is_that_of_stage_and_settings() -> None:
    identity = StageIdentity("numbers", "1", {"factor": 1}, {"source": "x"})
    assert code_version(identity).startswith("1-")
    assert code_version(identity) == code_version(StageIdentity("numbers", "1", {"factor": 1}, {}))
    assert code_version(identity) != code_version(StageIdentity("numbers", "1", {"factor": 2}, {}))
