"""The words that use what training has left: `generate_text` and `convert_pytorch_to_hf_checkpoint`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from modalities_pipeline.command_line.options import PATH, config_file_path, overrides
from modalities_pipeline.command_line.words import Word

if TYPE_CHECKING:
    from modalities_pipeline.config.overlays import Override


@click.command(cls=Word, help="Let a trained model go on with prompts, as a YAML file says.")
@config_file_path
@overrides
def generate_text(config_file_path: Path, overrides: "Sequence[Override]") -> None:
    """Generate text."""
    from modalities_pipeline.inference.text_inference import generate_text

    generate_text(config_file_path, overrides)


@click.command(
    cls=Word, help="Make a folder that Hugging Face transformers loads of a checkpoint that a YAML file names."
)
@config_file_path
@click.option("--output_hf_checkpoint_dir", type=PATH, required=True, help="The new folder.")
@click.option("--prediction_key", required=True, help="The key under which the model returns its logits.")
def convert_pytorch_to_hf_checkpoint(
    config_file_path: Path, output_hf_checkpoint_dir: Path, prediction_key: str
) -> None:
    """Convert a checkpoint."""
    from modalities_pipeline import api

    api.convert_pytorch_to_hf_checkpoint(config_file_path, output_hf_checkpoint_dir, prediction_key)
