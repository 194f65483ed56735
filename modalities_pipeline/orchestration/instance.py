"""Makes a DAGSTER_HOME ready: `python -m modalities_pipeline.orchestration.instance [HOME]`.

Two processes that use a fresh home at the same time can break its SQLite databases for good, so the first use is made
here, under a lock. Running it again changes nothing.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.data.locks import output_lock
from modalities_pipeline.exceptions import ConfigError

DEFAULT_HOME = Path(".dagster_home")
_SETTINGS_PATH = Path("configs") / "dagster.yaml"


def initialize_instance(home: Path) -> None:
    """Create a home with the settings of configs/dagster.yaml and its databases; settings that exist are kept.

    Raises:
        ConfigError: the home has no settings and configs/dagster.yaml is not found either.
    """
    home = home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    with output_lock(home / "dagster.yaml"):
        if not (home / "dagster.yaml").exists():
            content = _find_settings().read_text("utf-8")
            with atomic_path(home / "dagster.yaml") as temporary:
                temporary.write_text(content, "utf-8")
        with dg.DagsterInstance.from_config(str(home)) as instance:
            # each of the three databases is made when it is first asked something
            instance.get_runs_count()
            instance.get_latest_materialization_event(dg.AssetKey("raw_documents"))
            instance.all_instigator_state()


def _find_settings() -> Path:
    checkout = Path(__file__).resolve().parents[2]
    for folder in (Path.cwd(), checkout):
        if (folder / _SETTINGS_PATH).is_file():
            return folder / _SETTINGS_PATH
    raise ConfigError(
        f"No {_SETTINGS_PATH} in {Path.cwd()}. Go to the repository, or write HOME/dagster.yaml yourself."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the home is the argument, else the variable DAGSTER_HOME, else `.dagster_home` here."""
    parser = argparse.ArgumentParser(prog="instance", description="Make a DAGSTER_HOME ready for use.")
    default = Path(os.environ.get("DAGSTER_HOME") or DEFAULT_HOME)
    parser.add_argument("home", nargs="?", type=Path, default=default, help=f"the folder (default: {default})")
    home: Path = parser.parse_args(arguments).home
    try:
        initialize_instance(home)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"DAGSTER_HOME={home.resolve()} is ready.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
