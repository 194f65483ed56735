"""Stage "generated_text": prompts and how a trained model goes on."""

import dataclasses
import time
from pathlib import Path

from modalities_pipeline.data.files import FileExistencePolicy
from modalities_pipeline.data.manifest import BuildResult, Manifest, StageIdentity
from modalities_pipeline.data.production import produce
from modalities_pipeline.inference.samples import write_samples
from modalities_pipeline.inference.settings import GenerationSettings

STAGE = "generated_text"
CODE_VERSION = "1"


def identity(hf_model_digest: str, settings: GenerationSettings) -> StageIdentity:
    """What decides the generated text."""
    return StageIdentity(
        stage=STAGE,
        code_version=CODE_VERSION,
        settings=settings.model_dump(mode="json"),
        inputs={"hf_model": hf_model_digest},
    )


def build_generated_text(
    hf_model_dir: Path,
    output_dir: Path,
    settings: GenerationSettings,
    file_existence_policy: FileExistencePolicy,
    identity: StageIdentity,
) -> Manifest | None:
    """Continue every prompt and write the samples into a folder (see `inference.samples`).

    Returns the manifest, with the samples in its details, or None if the policy is SKIP and the output exists.

    Raises:
        UserError: a prompt fills the model's context.
    """

    def build(temporary: Path) -> BuildResult:
        # torch and transformers take seconds to import; reading this stage's name must not.
        from modalities_pipeline.inference.generation import Generator

        generator = Generator(hf_model_dir, settings)
        started = time.perf_counter()
        samples = list(generator.generate_all())
        duration_in_s = time.perf_counter() - started
        write_samples(samples, temporary)
        num_new_tokens = sum(sample.num_new_tokens for sample in samples)
        return BuildResult(
            counts={
                "num_prompts": len(samples),
                "num_new_tokens": num_new_tokens,
                "num_new_tokens_per_s": round(num_new_tokens / duration_in_s, 1),
            },
            details={"samples": [dataclasses.asdict(sample) for sample in samples]},
        )

    return produce(output_dir, [hf_model_dir], file_existence_policy, lambda: identity, build)
