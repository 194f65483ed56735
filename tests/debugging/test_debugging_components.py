"""Debugging from YAML."""

from typing import Any

import pytest
import torch
import yaml
from pydantic import BaseModel

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.registry import Registry

TEXT = """
debugging:
  component_key: debugging
  variant_key: settings
  config:
    enable_determinism: true
    forward_hooks:
      - component_key: model_debugging_hook
        variant_key: nan_hook
        config:
          model: {instance_key: model, pass_type: BY_REFERENCE}
          raise_exception: true
      - component_key: model_debugging_hook
        variant_key: print_forward_hook
        config:
          model: {instance_key: model, pass_type: BY_REFERENCE}
          print_shape_only: true
model:
  component_key: model
  variant_key: debugging_enriched
  config:
    model: {instance_key: model_raw, pass_type: BY_REFERENCE}
    tracked_ranks: [0]
    log_interval_steps: 2
"""


class Model(BaseModel):
    model: Any
    debugging: Any


def test_a_model_is_watched_until_debugging_is_closed(make_gpt2_config, tmp_path, capsys):
    content = yaml.safe_load(TEXT)
    content["model"]["config"]["logging_dir_path"] = str(tmp_path)
    content["model_raw"] = {"component_key": "model", "variant_key": "gpt2", "config": make_gpt2_config()}
    components = ComponentFactory(Registry()).build_components(content, Model)
    tokens = {"input_ids": torch.zeros(1, 4, dtype=torch.int64)}
    with components.debugging:
        assert torch.are_deterministic_algorithms_enabled()
        torch.nn.init.constant_(components.model.transformer["lm_head"].weight, float("nan"))
        with pytest.raises(ValueError, match=r"NaN in output of transformer\.lm_head \(Linear\)"):
            components.model(tokens)
    assert "CausalSelfAttention transformer.h.1.attn\n  input: shape (1, 4, 128)" in capsys.readouterr().out
    components.model(tokens)
    assert not torch.are_deterministic_algorithms_enabled()
    assert capsys.readouterr().out == ""
    assert "transformer.h.1.attn" in (tmp_path / "tensor_stats_rank_0.jsonl").read_text("utf-8")
