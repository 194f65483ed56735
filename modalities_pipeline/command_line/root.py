"""The first word after `modalities-pipeline`."""

import click

from modalities_pipeline import __version__
from modalities_pipeline.command_line.words import LazyGroup

PROGRAM = "modalities-pipeline"
COMPLETION_VARIABLE = "_MODALITIES_PIPELINE_COMPLETE"

_HERE = "modalities_pipeline.command_line"
# word -> where its command is, and its summary
TARGETS = {
    "run": (f"{_HERE}.training:run", "train; start it with torchrun for more than one process"),
    "warmstart": (f"{_HERE}.training:warmstart", "train on from the checkpoint that an info file names"),
    "generate_text": (f"{_HERE}.checkpoint_use:generate_text", "let a trained model go on with prompts"),
    "convert_pytorch_to_hf_checkpoint": (
        f"{_HERE}.checkpoint_use:convert_pytorch_to_hf_checkpoint",
        "make a Hugging Face folder of a checkpoint",
    ),
    "config": (f"{_HERE}.config:config", "check a YAML file, show what it comes to, explain components"),
    "components": (f"{_HERE}.components:components", "the components that a YAML file can ask for"),
    "data": (f"{_HERE}.data:data", "prepare data: from JSONL text to packed tokens"),
    "benchmark": (f"{_HERE}.benchmark:benchmark", "run one config with many combinations of settings"),
    "profile": (f"{_HERE}.profile:profile", "measure where time and memory go"),
    "summary": (f"{_HERE}.summary:summary", "what the pipeline has produced so far"),
}

_EPILOG = f"""\
\b
Exit codes:
    0    done (or left alone, as the file existence policy says)
    1    an input, a setting or a config is wrong; the message says which and what to do
    2    wrong usage of the command line
    3    the machine refused: disk full, no permission, not enough memory
    70   a fault of this program, with the place where it happened
    130  interrupted

\b
Completion by the tab key, in bash (zsh_source and fish_source for those shells):
    eval "$({COMPLETION_VARIABLE}=bash_source {PROGRAM})"
"""

root = click.version_option(__version__, message="%(version)s")(
    LazyGroup(PROGRAM, targets=TARGETS, help="LLM pre-training from raw text to a Hugging Face model.", epilog=_EPILOG)
)
