"""From a stage's jobs to a `MaterializeResult`: the policy, the cache, and what the asset reports.

The manifests beside the outputs are the truth about what is up to date; Dagster's event log is never asked.
"""

import contextlib
import dataclasses
import os
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import dagster as dg
from pydantic import Field

from modalities_pipeline.data.files import FileExistencePolicy, digest_strings, hex_of, size_in_bytes
from modalities_pipeline.data.freshness import Action, Policy, decide
from modalities_pipeline.data.locks import output_lock
from modalities_pipeline.data.manifest import Manifest, StageIdentity, digest_of, read_manifest
from modalities_pipeline.data.progress_log import ProgressLog
from modalities_pipeline.exceptions import ModalitiesPipelineError, UserError
from modalities_pipeline.orchestration.parent_watch import ends_with_parent
from modalities_pipeline.orchestration.spec import PolicyName
from modalities_pipeline.orchestration.workers import num_cpus, run_in_processes

POLICY_TAG = "modalities_pipeline/policy"
UP_TO_DATE = "up_to_date"

_MAX_REASONS = 5  # in a line of the log; the table of outputs has them all
_MAX_REASON_LENGTH = 300
_MANY_JOBS = 64
_MUCH_INPUT_IN_BYTES = 2 << 30
_MAX_ROWS = 200  # of the table of outputs; metadata is stored with every run


class PolicyResource(dg.ConfigurableResource):
    """What to do about outputs that exist; the spec gives the default, run config or the run's tag may change it."""

    policy: PolicyName = "auto"
    # processes for an asset that has much to build; None: as many as CPUs
    num_workers: Annotated[int, Field(ge=1)] | None = None

    def num_workers_for(self, num_jobs: int, input_size_in_bytes: int) -> int:
        """How many processes build so much: one, unless there is enough to do for more to be worth their start."""
        if num_jobs < _MANY_JOBS and input_size_in_bytes < _MUCH_INPUT_IN_BYTES:
            return 1
        return max(min(self.num_workers or num_cpus(), num_jobs), 1)

    def for_run(self, context: dg.AssetExecutionContext) -> Policy:
        """The policy of this run.

        Raises:
            UserError: the run's tag names no policy.
        """
        name = context.run.tags.get(POLICY_TAG, self.policy)
        if name not in get_args(PolicyName):
            raise UserError(f"The tag {POLICY_TAG} is '{name}'. Use one of: {', '.join(get_args(PolicyName))}.")
        return Policy(name)


@dataclasses.dataclass(frozen=True)
class Job:
    """One output of an asset.

    Attributes:
        name: in the asset's table of outputs.
        identity: what decides its bytes.
        output_path: where it lies.
        build: builds it; picklable where an asset has several jobs.
        input_size_in_bytes: how much it reads, by which it is seen whether more processes are worth their start.
    """

    name: str
    identity: StageIdentity
    output_path: Path
    build: Callable[[FileExistencePolicy], Manifest | None]
    input_size_in_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a job; `manifest` is None only for a kept output that has none."""

    name: str
    action: Action
    reason: str
    manifest: Manifest | None
    digest: str
    size_in_bytes: int

    @classmethod
    def of(cls, name: str, output_path: Path, action: Action, reason: str) -> "Outcome":
        """The outcome of an output that lies at `output_path`."""
        manifest = read_manifest(output_path)
        return cls(name, action, reason, manifest, digest_of(output_path), size_in_bytes(output_path))


@contextlib.contextmanager
def user_errors_as_failures() -> Iterator[None]:
    """Let a step fail with the message alone of an error raised on purpose. Serves as a decorator too.

    A `UserError` is never retried: nothing would have changed.
    """
    try:
        yield
    except ModalitiesPipelineError as error:
        raise dg.Failure(description=str(error), allow_retries=not isinstance(error, UserError)) from None


def code_version(identity: StageIdentity) -> str:
    """Dagster's code version of a stage: its implementation's version and a hash of its settings."""
    settings = dataclasses.replace(identity, inputs={}).fingerprint
    return f"{identity.code_version}-{hex_of(settings)[:12]}"


def up_to_date_check(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """The check that fails, without blocking, when the policy kept an output that is out of date."""
    return dg.AssetCheckSpec(UP_TO_DATE, asset=key, description="No output was kept although it is out of date.")


def materialize(
    context: dg.AssetExecutionContext,
    policy: PolicyResource,
    lock_path: Path,
    jobs: Sequence[Job],
    describe: Callable[[list[Manifest]], Mapping[str, Any]] = lambda manifests: {},
) -> dg.MaterializeResult:
    """Build what has to be built of `jobs`, and report all of them; `describe` adds metadata from their manifests.

    Raises:
        OutputExistsError: an output is out of date and the policy is "error"; nothing was built then.
    """
    # each redrawing of a progress bar would be another line in the step's log
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    started = time.monotonic()
    run_policy = policy.for_run(context)
    with ends_with_parent(), output_lock(lock_path):
        decisions = [decide(job.identity, job.output_path, run_policy) for job in jobs]
        chosen = list(zip(jobs, decisions, strict=True))
        for job, decision in chosen:
            context.log.debug(f"{job.name}: {decision.action.value} ({decision.reason})")
        _build([job for job, decision in chosen if decision.action is Action.BUILD], context, policy)
        outcomes = [Outcome.of(job.name, job.output_path, decision.action, decision.reason) for job, decision in chosen]
    manifests = [outcome.manifest for outcome in outcomes if outcome.manifest is not None]
    metadata = {**describe(manifests), **report(outcomes, run_policy, time.monotonic() - started)}
    context.log.info(f"{context.asset_key.to_user_string()}: {summarize(outcomes)}")
    return dg.MaterializeResult(
        data_version=dg.DataVersion(combined_digest(outcomes)),
        metadata=metadata,
        check_results=[up_to_date_result(outcomes)],
    )


def _build(jobs: Sequence[Job], context: dg.AssetExecutionContext, policy: PolicyResource) -> None:
    num_workers = policy.num_workers_for(len(jobs), sum(job.input_size_in_bytes for job in jobs))
    builds = [partial(job.build, FileExistencePolicy.OVERRIDE) for job in jobs]
    done = run_in_processes(builds, num_workers) if num_workers > 1 else _run_here(builds)
    with ProgressLog(context.log, context.asset_key.to_user_string(), len(jobs), "outputs") as progress:
        for num_done in done:
            if num_done < len(jobs):  # that all are done is told by the summary
                progress.update(num_done)


def _run_here(builds: Sequence[Callable[[], object]]) -> Iterator[int]:
    for num_done, build in enumerate(builds, start=1):
        build()
        yield num_done


def combined_digest(outcomes: Sequence[Outcome]) -> str:
    """Digest of all outputs of an asset; that of a single output is its own."""
    if len(outcomes) == 1:
        return outcomes[0].digest
    return digest_strings([f"{outcome.name}={outcome.digest}" for outcome in outcomes])


def summarize(outcomes: Sequence[Outcome]) -> str:
    """One line for the log, for example "2 cache hit(s), 1 built (train: missing)"."""
    num = {action: sum(outcome.action is action for outcome in outcomes) for action in Action}
    parts = [
        f"{num[action]} {words}"
        for action, words in (
            (Action.CACHE_HIT, "cache hit(s)"),
            (Action.BUILD, "built"),
            (Action.KEEP_OUT_OF_DATE, "kept although out of date"),
        )
        if num[action]
    ]
    reasons = [
        f"{outcome.name}: {textwrap.shorten(outcome.reason, _MAX_REASON_LENGTH, placeholder=' ...')}"
        for outcome in outcomes
        if outcome.action is not Action.CACHE_HIT
    ]
    if reasons:
        shown = "; ".join(reasons[:_MAX_REASONS]) + ("; ..." if len(reasons) > _MAX_REASONS else "")
        return f"{', '.join(parts)} ({shown})"
    return ", ".join(parts)


def report(outcomes: Sequence[Outcome], policy: Policy, seconds: float) -> dict[str, Any]:
    """The metadata that every asset has: counts, sizes, digest, cache hits, seconds, and a table of its outputs."""
    hits = [outcome for outcome in outcomes if outcome.action is Action.CACHE_HIT]
    manifests = [outcome.manifest for outcome in outcomes if outcome.manifest is not None]
    saved = sum(outcome.manifest.duration_in_s for outcome in hits if outcome.manifest is not None)
    rows = [
        dg.TableRecord(
            {
                "output": outcome.name,
                "action": outcome.action.value,
                "reason": outcome.reason,
                "size_in_bytes": outcome.size_in_bytes,
                "build_seconds": outcome.manifest.duration_in_s if outcome.manifest else 0.0,
                "digest": outcome.digest,
            }
        )
        for outcome in sorted(outcomes, key=lambda outcome: outcome.action is Action.CACHE_HIT)[:_MAX_ROWS]
    ]
    return {
        **total_counts(manifests),
        "cache_hits": len(hits),
        "cache_misses": len(outcomes) - len(hits),
        "summary": summarize(outcomes),
        "policy": policy.value,
        "seconds": round(seconds, 2),
        "seconds_saved": round(saved, 2),
        "size_in_bytes": sum(outcome.size_in_bytes for outcome in outcomes),
        "digest": combined_digest(outcomes),
        **({"outputs": dg.MetadataValue.table(rows)} if rows else {}),
    }


def total_counts(manifests: Sequence[Manifest]) -> dict[str, int | float]:
    """Sums of all manifests' counts; a rate (`..._per_s`) is averaged, weighted by the time its output took."""
    totals: dict[str, int | float] = {}
    total_duration = sum(manifest.duration_in_s for manifest in manifests)
    for manifest in manifests:
        weight = manifest.duration_in_s / total_duration if total_duration else 1 / len(manifests)
        for name, value in manifest.counts.items():
            totals[name] = totals.get(name, 0) + value * (weight if name.endswith("_per_s") else 1)
    return totals


def up_to_date_result(outcomes: Sequence[Outcome]) -> dg.AssetCheckResult:
    """The result of `up_to_date_check`, with the reasons for what is out of date."""
    kept = {outcome.name: outcome.reason for outcome in outcomes if outcome.action is Action.KEEP_OUT_OF_DATE}
    return dg.AssetCheckResult(
        check_name=UP_TO_DATE,
        passed=not kept,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"num_kept": len(kept), **({"kept": dg.MetadataValue.json(kept)} if kept else {})},
    )
