"""The config of a run: as it was given, and as it is run. Imports no torch."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from modalities_pipeline.checkpointing.folders import find_latest_checkpoint, has_fsdp1_files
from modalities_pipeline.checkpointing.resume import checkpoint_path_of, overrides_to_resume
from modalities_pipeline.config.checking.faults import Fault, fault_at
from modalities_pipeline.config.origins import ConfigDocument, Origin
from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.config.resolution import ResolvedConfig, ResolverContext, resolve
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.kinds import kind_of
from modalities_pipeline.config.schemas.preparation import prepare
from modalities_pipeline.config.yaml_files.self_contained import self_contained_data
from modalities_pipeline.exceptions import ConfigError


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """A config with all that it extends.

    Attributes:
        given: its content with the overrides of whoever started the run.
        resolved: in today's vocabulary, with default settings, without `${...}`.
        found: what was translated, what the training will not use, and what does not fit the way it was started.
        resumed_from: the checkpoint from which the run goes on, if it does.
    """

    given: ConfigDocument
    resolved: ResolvedConfig
    found: tuple[Fault, ...]
    resumed_from: Path | None = None


def resolve_run_config(given: ConfigDocument, context: ResolverContext, given_id: str | None = None) -> RunConfig:
    """Prepare and resolve the content of a config; `given_id` is the experiment id that was asked for, if one was."""
    kind = kind_of(given.data)
    # a plugin's file is found from wherever the resolved config lies later
    prepared, findings = prepare(dataclasses.replace(given, data=self_contained_data(given)), kind, is_run=True)
    resolved = resolve(prepared, context)
    findings = [*findings, *_misfits(resolved.data, given, context, given_id)]
    found = (fault_at(finding.key_path, finding.message, prepared, finding.is_note) for finding in findings)
    return RunConfig(given, resolved, tuple(found))


def _misfits(
    data: Mapping[str, Any], given: ConfigDocument, context: ResolverContext, given_id: str | None
) -> Iterator[Finding]:
    """Options that would be without effect, because the config does not ask for them."""
    if context.last_checkpoint_info_file_path is not None and "${warmstart_env:" not in str(given.data):
        yield Finding(
            (),
            "a warm start was asked for, but this config takes nothing from the checkpoint: there is no "
            "${warmstart_env:checkpoint_paths} in it. Let it load the checkpoint, as configs/warmstart.yaml does",
        )
    settings = data.get("settings")
    own_id = settings.get("experiment_id") if isinstance(settings, Mapping) else None
    if given_id is not None and isinstance(own_id, str) and own_id != given_id:
        yield Finding(
            ("settings", "experiment_id"),
            f"is '{own_id}', so '{given_id}', which was asked for, would be without effect; leave one of them out, or "
            "write ${modalities_env:experiment_id} here",
        )


def resume_run_config(config: RunConfig, overrides: Sequence[Override], context: ResolverContext) -> RunConfig:
    """The config of a run that goes on from its newest complete checkpoint; as it is if there is none.

    Args:
        config: how the run was started for the first time.
        overrides: what was set in it.
        context: of the run.

    Raises:
        ConfigError: the config does not say where its checkpoints are, or they are those of FSDP1.
    """
    checkpoint_path = checkpoint_path_of(config.resolved.data)
    checkpoint = find_latest_checkpoint(checkpoint_path)
    if checkpoint is None:
        if has_fsdp1_files(checkpoint_path):
            raise ConfigError(
                f"--resume: {checkpoint_path} has checkpoints of FSDP1, which are files that the config has to name. "
                "Go on with `warmstart`, and model/fsdp1_checkpointed and optimizer/fsdp1_checkpointed in the config."
            )
        return config
    origin = Origin("--resume")
    # the app state may have been made of parts that an old config has instead
    changes = {"app_state": config.resolved.document.data["app_state"]}
    changes.update(overrides_to_resume(config.resolved.data, checkpoint))
    more = [Override(key, value, origin) for key, value in changes.items()]
    document = load_config(config.given.path, [*overrides, *more])
    resumed = resolve_run_config(document, context)
    return dataclasses.replace(resumed, given=config.given, resumed_from=checkpoint)


def in_our_order(second: Any, third: Any, fourth: Any) -> tuple[Any, Any, Any]:
    """(resolvers, experiment id, root) from arguments in that order, or in Modalities' newer: (root, resolvers, id)."""
    if not isinstance(second, str | Path):
        return second, third, fourth
    if isinstance(third, str):  # the id, given by its name
        return None, third, second
    return third, fourth, second
