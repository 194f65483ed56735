"""Options that several words have."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from modalities_pipeline.exceptions import ConfigError

if TYPE_CHECKING:
    from modalities_pipeline.config.overlays import Override

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

PATH = click.Path(readable=False, path_type=Path)  # nothing is looked up: what uses a file says best what it lacks


class _ConfigFile(click.Path):
    """A path at which there is no pipe or device: reading one might never end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from modalities_pipeline.data.files import refuse_irregular

        path: Any = super().convert(value, param, ctx)
        refuse_irregular([path])
        return path


CONFIG_FILE = _ConfigFile(readable=False, path_type=Path)


class _OverrideType(click.ParamType):
    """KEY=VALUE, where KEY is a dotted key and VALUE is YAML."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Override":
        from modalities_pipeline.config.overlays import parse_override

        try:
            return parse_override(value)
        except ConfigError as error:
            self.fail(str(error).removeprefix("--set "), param, ctx)


def config_file_path(function: FunctionT) -> FunctionT:
    """Add `--config_file_path`."""
    return click.option("--config_file_path", type=CONFIG_FILE, required=True, help="The YAML file.")(function)


def experiments_root_path(function: FunctionT) -> FunctionT:
    """Add `--experiments_root_path`, which one word of Modalities spells `--experiment_root_path`."""
    option = click.option(
        *("--experiments_root_path", "--experiment_root_path", "experiments_root_path"),
        type=PATH,
        help="Where experiment folders are; what the config says wins.  [default: experiments]",
    )
    return option(function)


def experiment_id(function: FunctionT) -> FunctionT:
    """Add `--experiment_id`."""
    return click.option(
        "--experiment_id",
        help='Name of the experiment folder; "" for the root itself.  [default: time and hash of the config]',
    )(function)


def last_checkpoint_info_file_path(is_required: bool) -> Callable[[FunctionT], FunctionT]:
    """Add `--last_checkpoint_info_file_path`."""
    return click.option(
        "--last_checkpoint_info_file_path",
        type=PATH,
        required=is_required,
        help="The last_checkpoint_info.json beside the checkpoints; ${warmstart_env:checkpoint_paths} is its content.",
    )


def overrides(function: FunctionT) -> FunctionT:
    """Add `--set`."""
    return click.option(
        *("--set", "overrides"),
        type=_OverrideType(),
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one value of the config, as in optimizer.config.lr=1e-4; may be given several times.",
    )(function)
