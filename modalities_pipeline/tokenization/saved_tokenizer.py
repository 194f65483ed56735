"""Stage tokenizer: keep a copy of the tokenizer that a component node names, and what must be known of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity, input_digest_of
from modalities_pipeline.data.production import produce
from modalities_pipeline.exceptions import ConfigError, UserError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

STAGE = "tokenizer"
CODE_VERSION = "1"

_PATH_KEYS = ("pretrained_model_name_or_path", "tokenizer_model_file")


def tokenizer_details(tokenizer: TokenizerWrapper, eod_token: str) -> dict[str, Any]:
    """What manifests say of a tokenizer.

    Raises:
        UserError: the end-of-document token is not in the vocabulary.
    """
    eod_token_id = tokenizer.find_token_id(eod_token)
    if eod_token_id is None:
        raise UserError(
            f"eod_token '{eod_token}' is not in the tokenizer's vocabulary. Its special tokens are: "
            f"{', '.join(tokenizer.special_tokens) or 'none'}."
        )
    return {
        "tokenizer_fingerprint": tokenizer.fingerprint(),
        "vocab_size": tokenizer.vocab_size,
        "num_token_ids": tokenizer.num_token_ids,
        "eod_token": eod_token,
        "eod_token_id": eod_token_id,
    }


def identity(component: Mapping[str, Any], eod_token: str) -> StageIdentity:
    """Identity of the copy: the node with its folder or file replaced by the digest of what is there."""
    config = dict(component.get("config", {}))
    inputs = {}
    for key in _PATH_KEYS:
        if key in config and Path(config[key]).exists():
            inputs[key] = input_digest_of(Path(config.pop(key)))
    settings = {"variant_key": component.get("variant_key"), "config": config, "eod_token": eod_token}
    return StageIdentity(STAGE, CODE_VERSION, json.loads(json.dumps(settings)), inputs)


def build_saved_tokenizer(
    component: Mapping[str, Any],
    eod_token: str,
    output_dir: Path,
    file_existence_policy: FileExistencePolicy = FileExistencePolicy.ERROR,
) -> Manifest | None:
    """Build the tokenizer of a component node and save its files into a folder.

    Raises:
        UserError: the node is wrong, nothing can be loaded, or the end-of-document token is not in the vocabulary.
        OutputExistsError: the folder exists and the policy is ERROR.
    """

    def build(temporary: Path) -> BuildResult:
        tokenizer = build_tokenizer(component)
        details = tokenizer_details(tokenizer, eod_token)
        temporary.mkdir()
        tokenizer.save(temporary)
        return BuildResult({"vocab_size": tokenizer.vocab_size}, details)

    return produce(output_dir, [], file_existence_policy, lambda: identity(component, eod_token), build)


def build_tokenizer(component: Any) -> TokenizerWrapper:
    """The tokenizer of a component node.

    Raises:
        ConfigError: the node is wrong.
        UserError: the component is no tokenizer.
    """
    if not isinstance(component, Mapping) or "component_key" not in component:
        raise ConfigError(
            f"tokenizer: has to be a component, a mapping with component_key, variant_key and config (given: "
            f"{component!r:.80})."
        )
    from modalities_pipeline.config.factory import ComponentFactory
    from modalities_pipeline.config.registry import Registry

    tokenizer = ComponentFactory(Registry()).build_component(dict(component))
    if not isinstance(tokenizer, TokenizerWrapper):
        raise UserError(f"{component.get('component_key')}/{component.get('variant_key')} is not a tokenizer.")
    return tokenizer
