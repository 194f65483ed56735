"""Where each stage's output lies below the pipeline's output folder."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Layout:
    """Paths of all outputs; every stage has a folder of its own name, below its corpus or experiment."""

    output_dir: Path

    @property
    def raw_documents(self) -> Path:
        """Folder of the embedded text: one JSONL file per split."""
        return self.output_dir / "raw_documents"

    @property
    def tokenizer(self) -> Path:
        """Folder of the tokenizer."""
        return self.output_dir / "tokenizer"

    def raw_files(self, corpus: str) -> Path:
        """JSON list of the corpus' files and their digests."""
        return self.output_dir / corpus / "raw_files.json"

    def raw_index(self, corpus: str, stem: str) -> Path:
        """Index of one raw file."""
        return self.output_dir / corpus / "raw_index" / f"{stem}.idx"

    def tokenized_pack(self, corpus: str, stem: str) -> Path:
        """Tokens of one raw file."""
        return self.output_dir / corpus / "tokenized_pack" / f"{stem}.pbin"

    def shuffled_chunk(self, corpus: str, chunk_id: int) -> Path:
        """One shuffled share of all the corpus' documents."""
        return self.output_dir / corpus / "shuffled_chunks" / f"chunk_{chunk_id}.pbin"

    def merged_pbin(self, corpus: str) -> Path:
        """All tokens of the corpus in one file."""
        return self.output_dir / corpus / "merged_pbin" / "merged.pbin"

    def trained_checkpoint(self, experiment: str) -> Path:
        """Folder of the experiment's training runs, each in a folder named by its fingerprint."""
        return self.output_dir / experiment / "trained_checkpoint"

    def hf_model(self, experiment: str) -> Path:
        """Folder that `transformers` loads."""
        return self.output_dir / experiment / "hf_model"

    def generated_text(self, experiment: str) -> Path:
        """Folder of prompts and continuations."""
        return self.output_dir / experiment / "generated_text"

    def lock(self, asset_name: str) -> Path:
        """Name whose lock is held while an asset is materialized."""
        return self.output_dir / "locks" / asset_name
