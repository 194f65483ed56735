"""The stages that are compared: who runs them with which request, and what their outputs must be."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import checks
from comparison import BATCHES, OURS, PEER, PEER_TWO_WORKERS, REFERENCE, Comparison, Place, Variant, both
from measure import Interpreter, our_interpreter, run_stage

from modalities_pipeline.data.manifest import manifest_path, read_manifest
from modalities_pipeline.data.pbin import PackedFileWriter

_REFERENCE_BACKEND = "tokenizers"
_SEED = 7
_BLOCK_SIZE = 257
_BATCH_SIZE = 32
_ORDER_BLOCK = 8192  # positions turned into Python's integers at once, so that the order takes little memory
_STRIDE = 997  # of the documents whose index entries are compared when a large file is opened
_WRITE_BLOCK_IN_DOCUMENTS = 1 << 20


def make_inputs(place: Place) -> None:
    """Make our index and pack of the corpus, on which the later stages work."""
    request = {"stage": "raw_index", "source": str(place.corpus.path), "output": str(place.index_path)}
    run_stage(our_interpreter(), request)
    original, copy = place.packs
    run_stage(our_interpreter(), _pack_request(place, original, {"num_cpus": 2}))
    for source, target in ((original, copy), (manifest_path(original), manifest_path(copy))):
        shutil.copy2(source, target)


def raw_index(place: Place) -> Comparison:
    """`create_raw_data_index`."""

    def variant(name: str, interpreter: Interpreter) -> Variant:
        output = place.output(name, ".idx")
        request = {"stage": "raw_index", "source": str(place.corpus.path), "output": str(output)}
        return Variant(interpreter, request, output)

    def check(outputs: Mapping[str, Path]) -> None:
        if len(checks.read_idx(outputs[OURS])) != place.corpus.num_documents:
            raise checks.WrongOutputError(f"{outputs[OURS]} has not one entry per document.")
        if PEER in outputs:
            checks.require_same_idx(outputs[OURS], outputs[PEER])

    return Comparison("raw_index", both(place, variant), check)


def pack(place: Place) -> Comparison:
    """`pack_encoded_data` with each of our backends; Modalities with one and two workers."""
    ours: dict[str, dict[str, Any]] = {OURS: {"num_cpus": 2}}
    if place.with_reference:
        ours[REFERENCE] = {"num_cpus": 2, "tokenizer_backend": "reference"}
    variants = {}
    if place.peer is not None:
        for name, num_cpus in ((PEER, 1), (PEER_TWO_WORKERS, 2)):
            output = place.output(name, ".pbin")
            variants[name] = Variant(place.peer, _pack_request(place, output, {"num_cpus": num_cpus}), output)
    for name, settings in ours.items():
        output = place.output(name, ".pbin")
        variants[name] = Variant(our_interpreter(), _pack_request(place, output, settings), output)

    def check(outputs: Mapping[str, Path]) -> None:
        checks.require_documents(outputs[OURS], place.corpus.num_documents)
        for name in outputs.keys() - {OURS}:
            checks.require_same_pbin(outputs[OURS], outputs[name])
        backends = {name: _backend(outputs[name]) for name in ours}
        if backends[OURS] == _REFERENCE_BACKEND or backends.get(REFERENCE, _REFERENCE_BACKEND) != _REFERENCE_BACKEND:
            raise checks.WrongOutputError(f"The backends are not the ones to be compared: {backends}.")

    return Comparison("pack", variants, check)


def _backend(output: Path) -> str:
    """What tokenized a pack of ours."""
    manifest = read_manifest(output)
    if manifest is None:
        raise checks.WrongOutputError(f"{output} has no manifest.")
    return str(manifest.details["tokenizer_backend"])


def chunk(place: Place) -> Comparison:
    """`create_shuffled_dataset_chunk`, the first of two chunks."""
    return _of_pack(place, "chunk", (place.corpus.num_documents + 1) // 2)


def shuffle(place: Place) -> Comparison:
    """`shuffle_tokenized_data`."""
    return _of_pack(place, "shuffle", place.corpus.num_documents)


def keep_half(place: Place) -> Comparison:
    """`create_filtered_tokenized_dataset`, every second document."""
    return _of_pack(place, "filter", (place.corpus.num_documents + 1) // 2)


def shuffle_lines(place: Place) -> Comparison:
    """`shuffle_jsonl_data`."""
    return _of_lines(place, "shuffle_jsonl", place.corpus.num_documents)


def chunk_lines(place: Place) -> Comparison:
    """`create_shuffled_jsonl_dataset_chunk`, the first of two chunks."""
    return _of_lines(place, "chunk_jsonl", (place.corpus.num_documents + 1) // 2)


def merge(place: Place) -> Comparison:
    """`merge_packed_data_files` of two files; our index must be the right one, which Modalities' is not."""

    def variant(name: str, interpreter: Interpreter) -> Variant:
        output = place.output(name, ".pbin")
        request = {"stage": "merge", "sources": [str(path) for path in place.packs], "output": str(output)}
        return Variant(interpreter, request, output)

    def check(outputs: Mapping[str, Path]) -> None:
        checks.require_documents(outputs[OURS], 2 * place.corpus.num_documents)
        if PEER in outputs:
            checks.require_same_pbin(outputs[OURS], outputs[PEER], right_index=checks.merged_index(place.packs))

    return Comparison("merge", both(place, variant), check)


def iterate(place: Place) -> Comparison:
    """All blocks of the continuous dataset in random order."""
    request = {
        "stage": "iterate",
        "source": str(place.packs[0]),
        "block_size": _BLOCK_SIZE,
        "order_block": _ORDER_BLOCK,
        "seed": _SEED,
    }
    variants = both(place, lambda _, interpreter: Variant(interpreter, {**request, "batch_size": 1}))
    variants[BATCHES] = Variant(our_interpreter(), {**request, "batch_size": _BATCH_SIZE})
    return Comparison("iterate", variants, with_descriptions=True)


def open_documents(folder: Path, num_documents: int, peer: Interpreter | None) -> Comparison:
    """Open a packed file of so many documents of one token each."""
    path = folder / f"{num_documents}.pbin"
    write_one_token_documents(path, num_documents)
    request = {"stage": "open_documents", "source": str(path), "stride": _STRIDE}
    variants = {PEER: Variant(peer, request)} if peer is not None else {}
    return Comparison("open", {**variants, OURS: Variant(our_interpreter(), request)}, with_descriptions=True)


def write_one_token_documents(path: Path, num_documents: int) -> None:
    """Write a packed file of documents of one two-byte token."""
    import numpy as np

    with PackedFileWriter(path, 2) as writer:
        for start in range(0, num_documents, _WRITE_BLOCK_IN_DOCUMENTS):
            count = min(_WRITE_BLOCK_IN_DOCUMENTS, num_documents - start)
            tokens = (np.arange(start, start + count) % 50_000).astype("<u2")
            writer.write_flat(tokens, np.ones(count, dtype=np.int64))


def _of_pack(place: Place, stage: str, num_documents: int) -> Comparison:
    def variant(name: str, interpreter: Interpreter) -> Variant:
        output = place.output(name, ".pbin")
        request = {"stage": stage, "source": str(place.packs[0]), "output": str(output), "seed": _SEED}
        return Variant(interpreter, request, output)

    def check(outputs: Mapping[str, Path]) -> None:
        checks.require_documents(outputs[OURS], num_documents)
        if PEER in outputs:
            checks.require_same_pbin(outputs[OURS], outputs[PEER])

    return Comparison(stage, both(place, variant), check)


def _of_lines(place: Place, stage: str, num_documents: int) -> Comparison:
    def variant(name: str, interpreter: Interpreter) -> Variant:
        output = place.output(name, ".jsonl")
        request = {"stage": stage, "source": str(place.corpus.path), "output": str(output), "seed": _SEED}
        return Variant(interpreter, request, output)

    def check(outputs: Mapping[str, Path]) -> None:
        checks.require_lines(outputs[OURS], num_documents)
        if PEER in outputs:
            checks.require_same_bytes(outputs[OURS], outputs[PEER])

    return Comparison(stage, both(place, variant), check)


def _pack_request(place: Place, output: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "src_path": str(place.corpus.path),
        "index_path": str(place.index_path),
        "dst_path": str(output),
        "jq_pattern": ".text",
        "eod_token": "<|endoftext|>",
        "processing_batch_size": 1000,
        "raw_samples_queue_size": 300,
        "processed_samples_queue_size": 300,
        **changes,
    }
    config = {"pretrained_model_name_or_path": str(place.tokenizer_dir), "padding": False, "truncation": False}
    tokenizer = {"component_key": "tokenizer", "variant_key": "pretrained_hf_tokenizer", "config": config}
    return {
        "stage": "pack",
        "pack_config": {"settings": settings, "tokenizer": tokenizer},
    }
