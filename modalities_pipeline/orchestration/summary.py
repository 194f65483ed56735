"""What a pipeline has made, told from the manifests alone: `modalities-pipeline summary`."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from modalities_pipeline.data.manifest import Manifest, manifest_path, read_manifest
from modalities_pipeline.data.raw_files import read_raw_files
from modalities_pipeline.inference.samples import MARKDOWN_FILE_NAME, read_generated_text
from modalities_pipeline.orchestration.spec import PipelineSpec, load_pipeline_spec
from modalities_pipeline.orchestration.training_result import evaluation_losses_of, train_loss_of
from modalities_pipeline.orchestration.training_run import TrainingRun, current_run

_SAMPLE_LENGTH = 300
_OUT_OF_DATE = " (out of date: made from an older checkpoint)"


def main(since: int | None = None) -> int:
    """Print the summary of the pipeline whose spec `load_pipeline_spec` finds; returns the exit code."""
    print("\n".join(summary_lines(load_pipeline_spec(), since)))
    return 0


def summary_lines(spec: PipelineSpec, since: int | None = None) -> Iterator[str]:
    """Seconds by stage, losses against the unigram model, a sample of text, and where everything is.

    With `since` (Unix seconds) it is also told what was built after that time.
    """
    yield f"\nOutputs in {spec.output_dir}"
    yield from _stage_lines(spec)
    if since is not None:
        yield _built_line(spec, since)
    for name in spec.experiments:
        yield from _experiment_lines(spec, name)
    yield "\nTo see lineage, metadata and the loss curve: make ui, then open http://127.0.0.1:3000"


def _stage_lines(spec: PipelineSpec) -> Iterator[str]:
    yield f"\n{'asset':<32} {'outputs':>8} {'bytes':>14} {'built in':>10}"
    for name, paths in _outputs(spec):
        manifests = [manifest for path in paths if (manifest := read_manifest(path)) is not None]
        if not manifests:
            yield f"{name:<32} {'not made yet':>34}"
            continue
        size = sum(manifest.size_in_bytes for manifest in manifests)
        seconds = sum(manifest.duration_in_s for manifest in manifests)
        yield f"{name:<32} {len(manifests):>8} {size:>14,} {seconds:>8.1f} s"


def _built_line(spec: PipelineSpec, since: int) -> str:
    built = [name for name, paths in _outputs(spec) if any(_was_built_after(path, since) for path in paths)]
    return f"\nBuilt now: {', '.join(built)}." if built else "\nNothing had to be built: every stage was up to date."


def _was_built_after(path: Path, since: int) -> bool:
    manifest = read_manifest(path)
    return manifest is not None and datetime.fromisoformat(manifest.created_at).timestamp() >= since


def _outputs(spec: PipelineSpec) -> Iterator[tuple[str, list[Path]]]:
    """Every asset with the paths of its outputs, in the order of the pipeline."""
    layout = spec.layout
    if any(corpus.documents for corpus in spec.corpora.values()):
        yield "raw_documents", [layout.raw_documents]
    yield "tokenizer", [layout.tokenizer]
    for name, corpus in spec.corpora.items():
        raw_files = layout.raw_files(name)
        stems = [file.stem for file in read_raw_files(raw_files)] if manifest_path(raw_files).exists() else []
        yield f"{name}/raw_files", [raw_files]
        yield f"{name}/raw_index", [layout.raw_index(name, stem) for stem in stems]
        yield f"{name}/tokenized_pack", [layout.tokenized_pack(name, stem) for stem in stems]
        yield f"{name}/shuffled_chunks", [layout.shuffled_chunk(name, chunk) for chunk in range(corpus.num_chunks)]
        yield f"{name}/merged_pbin", [layout.merged_pbin(name)]
    for name in spec.experiments:
        run = current_run(layout.trained_checkpoint(name))
        complete = run is not None and run.manifest() is not None
        yield f"{name}/trained_checkpoint", [run.checkpoint_folder()] if run and complete else []
        yield f"{name}/hf_model", [layout.hf_model(name)]
        yield f"{name}/generated_text", [layout.generated_text(name)]


def _experiment_lines(spec: PipelineSpec, name: str) -> Iterator[str]:
    run = current_run(spec.layout.trained_checkpoint(name))
    manifest = run.manifest() if run else None
    if run is None or manifest is None:
        yield f"\nExperiment {name}: not trained yet."
        return
    yield f"\nExperiment {name}"
    yield from _training_lines(run, manifest)
    yield from _model_lines(spec, name, manifest)


def _model_lines(spec: PipelineSpec, name: str, checkpoint: Manifest) -> Iterator[str]:
    """Where model and text are; either may be missing, or have been made from what is no longer current."""
    model, text = (read_manifest(path) for path in (spec.layout.hf_model(name), spec.layout.generated_text(name)))
    is_model_stale = model is not None and model.inputs.get("checkpoint") != checkpoint.digest
    is_text_stale = is_model_stale or model is None or (text and text.inputs.get("hf_model") != model.digest)
    if model is not None:
        yield f"  Hugging Face model   {spec.layout.hf_model(name)}{_OUT_OF_DATE if is_model_stale else ''}"
    if text is not None:
        path = spec.layout.generated_text(name) / MARKDOWN_FILE_NAME
        yield f"  generated text       {path}{_OUT_OF_DATE if is_text_stale else ''}"
        sample = read_generated_text(spec.layout.generated_text(name))[0]
        words = " ".join((sample.prompt + sample.continuation).split())
        yield f'  sample               "{words[:_SAMPLE_LENGTH]}{"" if sample.stopped_at_eod else "..."}"'


def _training_lines(run: TrainingRun, manifest: Manifest) -> Iterator[str]:
    counts, details = manifest.counts, manifest.details
    losses = ", ".join(f"{tag} {loss:.3f}" for tag, loss in evaluation_losses_of(manifest).items())
    yield f"  trained in           {run.folder}"
    yield (
        f"  model                {counts['num_parameters']:,} parameters, {counts['num_tokens']:,} tokens in "
        f"{counts['num_steps']:,} steps, {counts['num_processes']} processes on {details['device']}"
    )
    yield (
        f"  loss in nats/token   train {train_loss_of(manifest):.3f}, {losses} "
        f"(a unigram model has {details['unigram_cross_entropy']:.3f})"
    )
