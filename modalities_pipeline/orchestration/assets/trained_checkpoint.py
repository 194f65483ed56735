"""Asset `<experiment>/trained_checkpoint`: a training run; this process imports no torch, it starts torchrun."""

import time
from collections.abc import Iterator

import dagster as dg

from modalities_pipeline.data.freshness import Action, Decision, Policy, decide
from modalities_pipeline.data.locks import output_lock
from modalities_pipeline.data.manifest import (
    BuildResult,
    Manifest,
    StageIdentity,
    input_digest_of,
    read_manifest,
    record,
)
from modalities_pipeline.data.packed.packed_inputs import tokenizer_inputs
from modalities_pipeline.exceptions import TrainingError
from modalities_pipeline.orchestration import training_metadata, training_run
from modalities_pipeline.orchestration.assets import merged_pbin
from modalities_pipeline.orchestration.experiment_config import write_config
from modalities_pipeline.orchestration.launch import TrainingProcessError, train, training_command
from modalities_pipeline.orchestration.materialize import (
    Outcome,
    PolicyResource,
    code_version,
    report,
    summarize,
    up_to_date_check,
    up_to_date_result,
    user_errors_as_failures,
)
from modalities_pipeline.orchestration.spec import ExperimentSpec, PipelineSpec
from modalities_pipeline.orchestration.training_result import finite_or_none
from modalities_pipeline.orchestration.training_run import TrainingRun

TrainingEvents = Iterator[dg.AssetObservation | dg.MaterializeResult]

_RETRY_DELAY_IN_S = 5


def key_of(experiment: str) -> dg.AssetKey:
    """The asset's key."""
    return dg.AssetKey([experiment, "trained_checkpoint"])


def trained_checkpoint_asset(spec: PipelineSpec, name: str) -> dg.AssetsDefinition:
    """The asset of one experiment."""
    experiment = spec.experiments[name]
    key = key_of(name)

    @dg.asset(
        key=key,
        deps=sorted({merged_pbin.key_of(experiment.train_corpus), merged_pbin.key_of(experiment.validation_corpus)}),
        group_name=name,
        kinds={"pytorch"},
        code_version=code_version(training_run.settings_identity(experiment)),
        check_specs=[up_to_date_check(key), *training_metadata.check_specs(key)],
        retry_policy=dg.RetryPolicy(max_retries=experiment.launcher.max_retries, delay=_RETRY_DELAY_IN_S),
    )
    def trained_checkpoint(context: dg.AssetExecutionContext, policy: PolicyResource) -> TrainingEvents:
        """A model trained by torchrun; an interrupted run goes on from its newest checkpoint."""
        started = time.monotonic()
        with user_errors_as_failures(), output_lock(spec.layout.lock(f"{name}_trained_checkpoint")):
            run_policy = policy.for_run(context)
            root = spec.layout.trained_checkpoint(name)
            identity = _identity(spec, experiment)
            run, decision = _decide(spec, name, identity, run_policy)
            if run is None or decision.action is Action.BUILD:
                run = training_run.run_to_train(root, identity.fingerprint)
                context.log.info(f"Training in {run.folder} (reason: {decision.reason})")
                yield from _train(context, spec, name, run)
                _record(spec, name, run, identity, time.monotonic() - started)
            if decision.action is not Action.KEEP_OUT_OF_DATE:
                training_run.set_current_run(root, run)
            yield _result(context, run, decision, run_policy, time.monotonic() - started)

    return trained_checkpoint


def _identity(spec: PipelineSpec, experiment: ExperimentSpec) -> StageIdentity:
    corpora = (experiment.train_corpus, experiment.validation_corpus)
    paths = [spec.layout.merged_pbin(corpus) for corpus in corpora]
    train_digest, validation_digest = (
        input_digest_of(path, f"{corpus}/merged_pbin") for path, corpus in zip(paths, corpora, strict=True)
    )
    return training_run.training_identity(experiment, train_digest, validation_digest, tokenizer_inputs(paths))


def _decide(
    spec: PipelineSpec, name: str, identity: StageIdentity, policy: Policy
) -> tuple[TrainingRun | None, Decision]:
    """The complete run that answers the question (of this fingerprint, else the current one), and what to do."""
    root = spec.layout.trained_checkpoint(name)
    run = training_run.find_complete_run(root, identity.fingerprint) or training_run.current_run(root)
    if run is None or run.manifest() is None:
        return None, Decision(Action.BUILD, "missing")
    return run, decide(identity, run.checkpoint_folder(), policy)


def _train(
    context: dg.AssetExecutionContext, spec: PipelineSpec, name: str, run: TrainingRun
) -> Iterator[dg.AssetObservation]:
    from modalities_pipeline.orchestration.experiment_check import check_experiment  # only needed to train

    experiment = spec.experiments[name]
    train_path, validation_path = (
        spec.layout.merged_pbin(corpus) for corpus in (experiment.train_corpus, experiment.validation_corpus)
    )
    check_experiment(experiment, train_path, validation_path)
    run.folder.mkdir(parents=True, exist_ok=True)
    write_config(run.config_path, experiment, train_path, validation_path)
    throttle = training_metadata.ObservationThrottle()
    try:
        for line in train(run, experiment.launcher, training_command(run, experiment.launcher)):
            context.log.info(training_metadata.log_line_of(line))
            if throttle.allows_one():
                yield dg.AssetObservation(context.asset_key, metadata=training_metadata.numbers_of(line))
    except TrainingProcessError as error:
        raise dg.Failure(description=str(error), allow_retries=not error.is_user_error) from None


def _record(spec: PipelineSpec, name: str, run: TrainingRun, identity: StageIdentity, duration_in_s: float) -> Manifest:
    from modalities_pipeline.data.token_statistics import unigram_cross_entropy

    experiment = spec.experiments[name]
    result = run.result()
    if result is None:
        raise TrainingError(f"Training ended without an error, but wrote no result into {run.folder}.")
    train_path = spec.layout.merged_pbin(experiment.train_corpus)
    data = read_manifest(train_path)
    if data is None:
        raise TrainingError(f"{train_path} lost its manifest while training ran. Materialize it again.")
    baseline = unigram_cross_entropy(
        train_path, spec.layout.merged_pbin(experiment.validation_corpus), data.details["num_token_ids"]
    )
    details = {
        "unigram_cross_entropy": baseline,
        "evaluation_losses": finite_or_none(result.evaluation_losses),
        "device": result.device,
        "train_dataset": dict(data.details),
    }
    build_result = BuildResult(training_metadata.counts_of(result), details)
    return record(identity, run.checkpoint_folder(), build_result, duration_in_s)


def _result(
    context: dg.AssetExecutionContext, run: TrainingRun, decision: Decision, policy: Policy, seconds: float
) -> dg.MaterializeResult:
    outcome = Outcome.of(run.folder.name, run.checkpoint_folder(), decision.action, decision.reason)
    manifest = outcome.manifest
    if manifest is None:
        raise TrainingError(f"{run.checkpoint_folder()} lost its manifest. Materialize the asset again.")
    context.log.info(f"{context.asset_key.to_user_string()}: {summarize([outcome])}")
    return dg.MaterializeResult(
        data_version=dg.DataVersion(outcome.digest),
        metadata={**training_metadata.describe_run(run, manifest), **report([outcome], policy, seconds)},
        check_results=[up_to_date_result([outcome]), *training_metadata.check_results(manifest)],
    )
