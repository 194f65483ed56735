"""Numbers of a training config that follow from others: steps, tokens, samples, batches. Exact integers throughout.

Every division drops the remainder, from left to right, as a training would: what does not fill a batch is not seen.
Nothing that takes long to import is needed for arithmetic alone: checking a config evaluates these functions.
"""

from pathlib import Path

from modalities_pipeline.data.packed.pbin_header import read_header
from modalities_pipeline.exceptions import ConfigError, DatasetNotFoundError
from modalities_pipeline.progress.training_progress import number_in_checkpoint_name


def get_local_num_batches_from_num_samples(num_ranks: int, global_num_samples: int, local_micro_batch_size: int) -> int:
    """Micro batches of one rank that `global_num_samples` samples fill."""
    return global_num_samples // num_ranks // local_micro_batch_size


def get_local_num_batches_from_num_tokens(
    num_ranks: int, global_num_tokens: int, sequence_length: int, local_micro_batch_size: int
) -> int:
    """Micro batches of one rank that `global_num_tokens` tokens fill."""
    return global_num_tokens // sequence_length // num_ranks // local_micro_batch_size


def get_num_samples_from_num_tokens(num_tokens: int, sequence_length: int) -> int:
    """Samples that `num_tokens` tokens fill."""
    return num_tokens // sequence_length


def get_num_steps_from_num_samples(
    dp_degree: int, local_micro_batch_size: int, global_num_samples: int, gradient_accumulation_steps: int
) -> int:
    """Optimizer steps that `global_num_samples` samples fill."""
    return global_num_samples // dp_degree // local_micro_batch_size // gradient_accumulation_steps


def get_num_steps_from_num_tokens(
    dp_degree: int,
    local_micro_batch_size: int,
    global_num_tokens: int,
    sequence_length: int,
    gradient_accumulation_steps: int,
) -> int:
    """Optimizer steps that `global_num_tokens` tokens fill."""
    return get_num_steps_from_num_samples(
        dp_degree, local_micro_batch_size, global_num_tokens // sequence_length, gradient_accumulation_steps
    )


def get_num_tokens_from_num_steps(
    num_steps: int,
    dp_degree: int,
    local_micro_batch_size: int,
    sequence_length: int,
    gradient_accumulation_steps: int,
) -> int:
    """Tokens that `num_steps` optimizer steps consume on all ranks."""
    return num_steps * dp_degree * local_micro_batch_size * sequence_length * gradient_accumulation_steps


def get_num_seen_steps_from_checkpoint_path(checkpoint_path: Path) -> int:
    """Optimizer steps done, from a checkpoint's name."""
    return number_in_checkpoint_name(checkpoint_path, "seen_steps")


def get_last_step_from_checkpoint_path(checkpoint_path: Path) -> int:
    """Index of the last step done (-1 if none), from a checkpoint's name."""
    return get_num_seen_steps_from_checkpoint_path(checkpoint_path) - 1


def get_global_num_seen_tokens_from_checkpoint_path(checkpoint_path: Path) -> int:
    """Tokens consumed on all ranks, from a checkpoint's name."""
    return number_in_checkpoint_name(checkpoint_path, "seen_tokens")


def get_global_num_target_tokens_from_checkpoint_path(checkpoint_path: Path) -> int:
    """Tokens that the run aimed at, from a checkpoint's name."""
    return number_in_checkpoint_name(checkpoint_path, "target_tokens")


def get_num_target_steps_from_checkpoint_path(checkpoint_path: Path) -> int:
    """Steps that the run's target tokens take at the batch size so far, from a checkpoint's name.

    Raises:
        ConfigError: no step or no token was seen yet, so the batch size is not known.
    """
    seen_tokens = get_global_num_seen_tokens_from_checkpoint_path(checkpoint_path)
    seen_steps = get_num_seen_steps_from_checkpoint_path(checkpoint_path)
    if not seen_tokens or not seen_steps:
        raise ConfigError(
            f"{checkpoint_path} has seen {seen_steps} steps and {seen_tokens} tokens, so its number of target steps "
            "cannot be derived. Use a later checkpoint, or write the number into the config."
        )
    return get_global_num_target_tokens_from_checkpoint_path(checkpoint_path) * seen_steps // seen_tokens


def get_num_tokens_from_packed_mem_map_dataset_continuous(
    dataset_path: Path,
    sequence_length: int,
    dp_degree: int,
    local_micro_batch_size: int,
    gradient_accumulation_steps: int,
    sample_key: str = "text",
    reuse_last_target: bool = True,
) -> int:
    """Tokens of a packed dataset that whole optimizer steps consume.

    The dataset is cut into samples as training cuts it: of `sequence_length` + 1 tokens, the last of which begins the
    next sample if `reuse_last_target`; else of `sequence_length` tokens.

    Raises:
        DatasetNotFoundError: there is no such file.
        ConfigError: the dataset is too short for a single step.
    """
    _refuse_missing(dataset_path, "Pack the data first.")
    num_tokens = read_header(dataset_path).num_tokens
    num_samples = (num_tokens - reuse_last_target) // sequence_length
    num_steps = get_num_steps_from_num_samples(
        dp_degree, local_micro_batch_size, num_samples, gradient_accumulation_steps
    )
    if num_steps < 1:
        samples_per_step = dp_degree * local_micro_batch_size * gradient_accumulation_steps
        raise ConfigError(
            f"{dataset_path} is too short for one step: its {num_tokens} tokens make {max(num_samples, 0)} samples of "
            f"length {sequence_length}, and a step needs {samples_per_step} ({dp_degree} data parallel ranks x "
            f"{local_micro_batch_size} samples x {gradient_accumulation_steps} accumulated micro batches), that is "
            f"{samples_per_step * sequence_length + reuse_last_target} tokens. Use more data, or lower one of these."
        )
    return get_num_tokens_from_num_steps(
        num_steps, dp_degree, local_micro_batch_size, sequence_length, gradient_accumulation_steps
    )


def get_num_steps_from_raw_dataset_index(
    raw_index_path: Path, num_ranks: int, local_micro_batch_size: int, gradient_accumulation_steps: int
) -> int:
    """Optimizer steps that the documents of a raw index fill, one document being one sample.

    Raises:
        DatasetNotFoundError: there is no such file.
    """
    _refuse_missing(raw_index_path, "Create the raw index first.")
    from modalities_pipeline.data.jsonl import read_index

    return get_num_steps_from_num_samples(
        num_ranks, local_micro_batch_size, len(read_index(raw_index_path)), gradient_accumulation_steps
    )


def get_vocab_size_from_packed_dataset(dataset_path: Path, multiple_of: int = 128) -> int:
    """Size of the embedding that a packed dataset's tokenizer needs, rounded up to a multiple of `multiple_of`.

    Raises:
        DatasetNotFoundError: there is no such file.
        ConfigError: the dataset has no manifest that says which token ids there can be.
    """
    _refuse_missing(dataset_path, "Pack the data first.")
    from modalities_pipeline.data.manifest import manifest_path, read_manifest

    manifest = read_manifest(dataset_path)
    if manifest is None or "num_token_ids" not in manifest.details:
        raise ConfigError(
            f"{manifest_path(dataset_path)} does not say how many token ids there are. Pack the data with this "
            "package, or write the vocabulary size into the config."
        )
    return -(-manifest.details["num_token_ids"] // multiple_of) * multiple_of


def _refuse_missing(path: Path, advice: str) -> None:
    """Before anything is imported that reads files."""
    if not path.is_file():
        raise DatasetNotFoundError(f"{path} does not exist or is not a file. {advice}")
