"""What the tests of the static check share."""

from modalities_pipeline.config.checking.faults import Fault

THING = "{component_key: thing, variant_key: plain, config: {size: 1}}"
SHARED = "{instance_key: shared, pass_type: BY_REFERENCE}"
HEAD = "settings: {name: x}\n"


def without_path(fault: Fault) -> str:
    """The fault of a file config.yaml, as "line:column: key: message"."""
    return str(fault).partition("config.yaml:")[2].strip()
