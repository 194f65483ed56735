"""What the tests of `check_config` share."""

from pathlib import Path

from modalities_pipeline.config.check import CheckReport

CONFIGS = Path(__file__).parents[2] / "configs"


def messages_of(report: CheckReport) -> list[str]:
    """The faults of a file config.yaml, as "line:column: key: message"."""
    return [str(fault).partition("config.yaml:")[2].strip() for fault in report.faults]
