"""The table of components: the rows of every folder that has some."""

from modalities_pipeline.checkpointing.components import COMPONENTS as CHECKPOINTING
from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.dataloading.components import COMPONENTS as DATALOADING
from modalities_pipeline.debugging.components import COMPONENTS as DEBUGGING
from modalities_pipeline.distributed.components import COMPONENTS as DISTRIBUTED
from modalities_pipeline.inference.components import COMPONENTS as INFERENCE
from modalities_pipeline.models.components import COMPONENTS as MODELS
from modalities_pipeline.optim.components import COMPONENTS as OPTIM
from modalities_pipeline.profiling.components import COMPONENTS as PROFILING
from modalities_pipeline.progress.components import COMPONENTS as PROGRESS
from modalities_pipeline.reporting.components import COMPONENTS as REPORTING
from modalities_pipeline.tokenization.components import COMPONENTS as TOKENIZATION

COMPONENTS: list[ComponentEntity] = [
    *MODELS,
    *OPTIM,
    *DISTRIBUTED,
    *CHECKPOINTING,
    *DATALOADING,
    *TOKENIZATION,
    *PROGRESS,
    *REPORTING,
    *PROFILING,
    *DEBUGGING,
    *INFERENCE,
]
