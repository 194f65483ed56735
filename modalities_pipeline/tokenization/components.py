"""The components of this folder, as rows of the table of components. Imports nothing but the row."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import TOKENIZER

_CONFIGS = "modalities_pipeline.tokenization.configs"

COMPONENTS: list[ComponentEntity] = [
    ComponentEntity(
        "tokenizer",
        "pretrained_hf_tokenizer",
        "modalities_pipeline.tokenization.tokenizers:PreTrainedHFTokenizer",
        f"{_CONFIGS}:PreTrainedHFTokenizerConfig",
        TOKENIZER,
        "a tokenizer of Hugging Face, from a folder or the hub",
    ),
    ComponentEntity(
        "tokenizer",
        "pretrained_sp_tokenizer",
        "modalities_pipeline.tokenization.sentencepiece_tokenizer:PreTrainedSPTokenizer",
        f"{_CONFIGS}:PreTrainedSPTokenizerConfig",
        TOKENIZER,
        "a SentencePiece model",
    ),
]
