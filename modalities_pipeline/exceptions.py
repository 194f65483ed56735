"""Every exception this package raises on purpose.

What a user got wrong (a file, a setting, a config) is a `UserError`, hence a `ValueError`. Its message says what is
wrong, where, and what to do. The other names are those of Modalities.
"""


class ModalitiesPipelineError(Exception):
    """Base of all errors raised on purpose by this package."""


class UserError(ModalitiesPipelineError, ValueError):
    """Something the user can mend: an input file, a setting, an option."""


class ConfigError(UserError):
    """A YAML file or a component's config is wrong."""


class MissingSectionError(ConfigError, KeyError):
    """A config lacks a whole section."""

    __str__ = Exception.__str__  # a KeyError would put the message in quotes


class DatasetFormatError(UserError):
    """A data file (.jsonl, .idx, .pbin) is not what its format demands."""


class UnsupportedTokenizerError(UserError, NotImplementedError):
    """A tokenizer setting would change the vocabulary."""


class OutputExistsError(UserError, FileExistsError):
    """An output is already there and the file existence policy says not to touch it."""


class OutputNotWritableError(UserError, OSError):
    """An output cannot be written: the disk is full, the folder is read-only, a path is too long."""


class OutputLockedError(ModalitiesPipelineError):
    """Another run is producing the same output right now."""


class DatasetNotFoundError(UserError, FileNotFoundError):
    """A data file that should be read does not exist."""


class BatchStateError(ModalitiesPipelineError):
    """A batch lacks a key that was asked for."""


class CheckpointingError(ModalitiesPipelineError):
    """A checkpoint could not be written or read."""


class ConversionError(UserError):
    """A model cannot be expressed in another format, or its conversion is not exact."""


class ModelStateError(ModalitiesPipelineError):
    """A model is not in the state that an operation needs (for example still on the meta device)."""


class OptimizerError(ModalitiesPipelineError):
    """The optimizer's parameter groups do not fit the model."""


class RunningEnvError(ModalitiesPipelineError):
    """The process environment (ranks, devices, process group) is not usable."""


class TimeRecorderStateError(ModalitiesPipelineError):
    """A `TimeRecorder` was started twice, or stopped or reset in the wrong state."""


class TrainingError(ModalitiesPipelineError):
    """Training cannot go on: a loss or gradient norm that is not finite, too little data, a dead process."""
