"""The word `components`."""

import dataclasses
import json

import click

from modalities_pipeline.command_line.output import emit
from modalities_pipeline.command_line.words import Word


@click.command(cls=Word, help="The components that a YAML file can ask for by component_key and variant_key.")
@click.option("--key", "component_key", help="Only those with this component_key.")
@click.option(
    *("--format", "output_format"),
    type=click.Choice(("table", "json", "markdown")),
    default="table",
    show_default=True,
    help="table: a line for each; json: for programs; markdown: the whole reference, with all fields.",
)
def components(component_key: str | None, output_format: str) -> None:
    """Print the table of components."""
    from modalities_pipeline.config.reference.table import markdown, table, table_as_text
    from modalities_pipeline.config.registry import Registry

    registry = Registry()
    if component_key is not None:
        entities = registry.entities(component_key)
        if not entities:
            registry.get_entity(component_key, "")  # raises, naming the closest
        registry = Registry(entities)
    if output_format == "markdown":
        emit(markdown(registry).rstrip("\n"))
        return
    rows = table(registry)
    if output_format == "json":
        emit(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    emit(table_as_text(rows).rstrip("\n"))
