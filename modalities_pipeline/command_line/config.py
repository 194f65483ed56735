"""The words of `config`: they look at YAML files and components, and build nothing."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modalities_pipeline.command_line import options
from modalities_pipeline.command_line.output import emit
from modalities_pipeline.command_line.words import WordGroup
from modalities_pipeline.config.schemas.kinds import KINDS, PARTS, PIPELINE

if TYPE_CHECKING:
    from modalities_pipeline.config.overlays import Override

config = WordGroup("config", help="Check a YAML file, show what it comes to, explain components.")


@config.command(
    "check",
    help="Find all faults of YAML files, each with file, line, column and key, and build nothing. Notes tell what "
    "could not be checked here; for a training config a report follows. The exit code is 1 if there is a fault.",
)
@click.argument("paths", type=options.CONFIG_FILE, nargs=-1, required=True, help="YAML files, or folders of them.")
@click.option(
    "--kind",
    type=click.Choice((*KINDS, PIPELINE, PARTS)),
    help="What they are meant to be.  [default: found out by their keys]",
)
@click.option(
    "--world_size",
    type=click.IntRange(min=1),
    help="Number of processes to check for.  [default: that of the environment, or 1]",
)
@options.last_checkpoint_info_file_path(is_required=False)
@options.overrides
@click.option(
    *("--format", "output_format"),
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="json: a list of faults and notes with file, line, column, key and message, for editors and CI.",
)
def check(
    paths: Sequence[Path],
    kind: str | None,
    world_size: int | None,
    last_checkpoint_info_file_path: Path | None,
    overrides: "Sequence[Override]",
    output_format: str,
) -> int:
    """Check files; returns the exit code."""
    from modalities_pipeline.command_line.check_output import CheckedFile, as_json, as_text, yaml_files

    files = [
        CheckedFile.check(path, kind, world_size, last_checkpoint_info_file_path, overrides)
        for path in yaml_files(paths)
    ]
    if output_format == "json":
        emit(as_json(files))
    else:
        for file in files:
            faults, rest = as_text(file, is_one_of_many=len(files) > 1)
            if faults:
                print(faults, file=sys.stderr, flush=True)
            emit(rest)
    return 0 if all(file.is_ok for file in files) else 1


@config.command(
    "show",
    help="Show a YAML file with everything that it extends, all ${...} resolved, and where each value comes from. "
    "Values of environment variables are not shown.",
)
@click.argument("path", type=options.CONFIG_FILE, help="The YAML file.")
@options.overrides
@options.last_checkpoint_info_file_path(is_required=False)
@click.option("--key", "dotted_key", help="Only this part, as in optimizer.config.")
def show(
    path: Path, overrides: "Sequence[Override]", last_checkpoint_info_file_path: Path | None, dotted_key: str | None
) -> None:
    """Show a resolved config."""
    from modalities_pipeline.config.overlays import load_config
    from modalities_pipeline.config.resolution import ResolverContext, resolve
    from modalities_pipeline.config.schemas.kinds import kind_of
    from modalities_pipeline.config.schemas.preparation import prepare
    from modalities_pipeline.config.yaml_files.resolved_file import render_with_origins

    document = load_config(path, overrides)
    document, _ = prepare(document, kind_of(document.data))
    words = [word for word in re.split(r"[.\[\]]+", dotted_key or "") if word]
    key_path = tuple(int(word) if word.isdecimal() else word for word in words)
    context = ResolverContext(last_checkpoint_info_file_path=last_checkpoint_info_file_path, check_only=True)
    emit(render_with_origins(resolve(document, context), key_path).rstrip("\n"))


@config.command("explain", help="Explain a component: its fields, their types, defaults and meaning, and an example.")
@click.argument("component", metavar="COMPONENT[/VARIANT]", help="As in optimizer or optimizer/adam_w.")
def explain(component: str) -> None:
    """Explain a component."""
    from modalities_pipeline.config.reference.table import explain
    from modalities_pipeline.config.registry import Registry

    component_key, separator, variant_key = component.partition("/")
    emit(explain(Registry(), component_key, variant_key if separator else None).rstrip("\n"))


@config.command(
    "diff",
    help="Tell which values differ between two YAML files, with everything that they extend, and where each stands.",
)
@click.argument("left", type=options.CONFIG_FILE, help="A YAML file.")
@click.argument("right", type=options.CONFIG_FILE, help="Another one.")
def diff(left: Path, right: Path) -> None:
    """Compare two configs."""
    from modalities_pipeline.command_line.config_diff import differences
    from modalities_pipeline.config.overlays import load_config

    lines = list(differences(load_config(left), load_config(right)))
    emit("\n".join(lines) if lines else "no differences")
