"""The files of instruction data as one set: checked before work starts, withdrawn together before new ones come."""

from collections.abc import Sequence
from pathlib import Path

from modalities_pipeline.data.files import (
    os_errors_named,
    refuse_irregular,
    refuse_long_names,
    refuse_output_among_inputs,
)
from modalities_pipeline.data.manifest import manifest_path
from modalities_pipeline.data.production import paths_written_with
from modalities_pipeline.exceptions import OutputNotWritableError, UserError


def check_output_files(output_paths: Sequence[Path], input_paths: Sequence[Path]) -> None:
    """Find what would keep a file from being written, before any is.

    Raises:
        UserError: two outputs have one name, or an output, its record or its lock is an input.
        OutputNotWritableError: a name is too long, or a folder lies where an output should.
    """
    refuse_long_names(*output_paths, *map(manifest_path, output_paths))
    written = [name for path in output_paths for name in paths_written_with(path)]
    for position, path in enumerate(written):
        if path in written[:position]:
            raise UserError(f"Two outputs would be {path}. Give dst_path another name.")
        refuse_output_among_inputs(path, input_paths)
        if path.is_dir():
            raise OutputNotWritableError(f"{path} cannot be written: it is a folder. Move it, or choose another name.")
    refuse_irregular(output_paths)


def withdraw(output_paths: Sequence[Path]) -> None:
    """Remove outputs and their records, in order, so that none is ever beside a new one of another content.

    Raises:
        OutputNotWritableError: the system refuses.
    """
    for path in output_paths:
        with os_errors_named(path):
            manifest_path(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
