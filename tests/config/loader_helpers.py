"""What the tests of the YAML loader share."""

from pathlib import Path

import pytest

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.exceptions import ConfigError


def refusal_of(path: Path) -> str:
    """The message with which a file is refused."""
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    return str(caught.value)
