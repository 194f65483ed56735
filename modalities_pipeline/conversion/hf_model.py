"""Stage "hf_model": a training checkpoint as a folder that transformers loads without remote code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity
from modalities_pipeline.data.production import produce

STAGE = "hf_model"
CODE_VERSION = "1"


def identity(
    checkpoint_digest: str,
    training_config: Mapping[str, Any],
    tokenizer_digest: str,
    eod_token: str,
    dtype: str = "float32",
) -> StageIdentity:
    """What decides the folder's bytes; of the training config give the part that describes the model."""
    return StageIdentity(
        stage=STAGE,
        code_version=CODE_VERSION,
        settings={"training_config": dict(training_config), "eod_token": eod_token, "dtype": dtype},
        inputs={"checkpoint": checkpoint_digest, "tokenizer": tokenizer_digest},
    )


def build_hf_model(
    config_file_path: Path,
    checkpoint_folder_path: Path,
    tokenizer_dir: Path,
    output_dir: Path,
    eod_token: str,
    file_existence_policy: FileExistencePolicy,
    identity: StageIdentity,
    dtype: str = "float32",
) -> Manifest | None:
    """Convert a distributed checkpoint to `LlamaForCausalLM`, with tokenizer, generation settings and model card.

    Before anything is published the new folder is loaded with plain `AutoModelForCausalLM` and `AutoTokenizer`, and its
    float32 logits must agree with ours to 1e-4. Returns None if the policy is SKIP and the output exists.

    Args:
        config_file_path: the training YAML, as stored in the experiment folder.
        checkpoint_folder_path: the folder that a DCP checkpoint was saved to.
        tokenizer_dir: the Hugging Face tokenizer that the training data was packed with.
        eod_token: its end-of-document token; becomes the model's bos, eos and pad token.
        dtype: of the saved weights: float32, bfloat16 or float16.

    Raises:
        ConfigError, CheckpointingError: the config or the checkpoint are not usable.
        ConversionError: Llama cannot express the model, the tokenizer does not fit, or the logits disagree.
    """

    def build(temporary: Path) -> BuildResult:
        # torch and transformers take seconds to import; reading this stage's name must not.
        from modalities_pipeline.conversion.hf_export import export_hf_model

        return export_hf_model(config_file_path, checkpoint_folder_path, tokenizer_dir, temporary, eod_token, dtype)

    return produce(output_dir, [], file_existence_policy, lambda: identity, build)
