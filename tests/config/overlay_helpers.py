"""What the tests of overlays and overrides share."""

from pathlib import Path

import pytest

from modalities_pipeline.config.overlays import Override, load_config
from modalities_pipeline.exceptions import ConfigError

BASE = """\
optimizer:
  component_key: optimizer
  variant_key: adam_w
  config: {lr: 1.0, betas: [0.9, 0.95]}
clipper: {instance_key: other, pass_type: BY_REFERENCE}
loss: {tag: x}
"""


def merge_refusal(path: Path, *overrides: Override) -> str:
    """The message with which a config is refused when it is merged."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)
