"""The word `summary`."""

import click

from modalities_pipeline.command_line.words import Word


@click.command(cls=Word, help="Tell what the pipeline has produced so far, from its manifests alone.")
@click.option("--since", type=int, help="Unix seconds; tell what was built after that time.")
def summary(since: int | None) -> int:
    """Print the summary of the pipeline whose spec the environment names."""
    from modalities_pipeline.orchestration import summary

    return summary.main(since)
