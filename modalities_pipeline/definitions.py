"""What Dagster loads: the assets of the pipeline spec (configs/pipeline.yaml, or MODALITIES_PIPELINE_CONFIG)."""

from modalities_pipeline.orchestration.graph import build_definitions
from modalities_pipeline.orchestration.spec import load_pipeline_spec

defs = build_definitions(load_pipeline_spec())
