"""A packing config: a tokenizer, and what is packed where."""

from pydantic import BaseModel, ConfigDict

from modalities_pipeline.config.pydantic_if_types import PydanticTokenizerIFType
from modalities_pipeline.config.schemas.pack_settings import PackConfigSettings


class PackedDatasetComponentsInstantiationModel(BaseModel):
    """Tokenizes an indexed JSON-lines file."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    tokenizer: PydanticTokenizerIFType
    settings: PackConfigSettings
