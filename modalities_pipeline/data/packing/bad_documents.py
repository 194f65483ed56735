"""What becomes of documents that yield no tokens: an error that names the place, or a count and a list."""

from typing import Any, Literal

from modalities_pipeline.data.packing.document_batches import DocumentBatches
from modalities_pipeline.data.packing.text_extraction import BadDocumentError
from modalities_pipeline.exceptions import DatasetFormatError

SKIP_REASONS = ("unreadable_line", "jq_failed", "missing_text", "not_a_string", "empty_text")

_MAX_REPORTED = 1000


class BadDocuments:
    """The bad documents of one raw file.

    Attributes:
        num_by_reason: how many were skipped, for each of `SKIP_REASONS`.
        reported: of the first thousand: position in the index ("document"), physical line from 1, byte offset, reason.
    """

    def __init__(self, documents: DocumentBatches, on_bad_sample: Literal["error", "skip"]) -> None:
        """Begin with none."""
        self._documents = documents
        self._on_bad_sample = on_bad_sample
        self.num_by_reason = dict.fromkeys(SKIP_REASONS, 0)
        self.reported: list[dict[str, Any]] = []

    @property
    def num_skipped(self) -> int:
        """Documents skipped so far."""
        return sum(self.num_by_reason.values())

    def add(self, position: int, error: BadDocumentError) -> None:
        """Count a document, or stop at it; positions ascend.

        Raises:
            DatasetFormatError: the policy is "error".
        """
        if self._on_bad_sample == "error":
            line, offset = self._documents.place_of(position)
            raise DatasetFormatError(
                f"{self._documents.source_path}, line {line} (byte {offset}): {error}. Mend the line, set jq_pattern "
                "to where the text is, or on_bad_sample: skip to leave such documents out and count them."
            ) from error
        self.num_by_reason[error.reason] += 1
        if len(self.reported) < _MAX_REPORTED:
            line, offset = self._documents.place_of(position)
            self.reported.append({"document": position, "line": line, "byte_offset": offset, "reason": error.reason})

    def summary(self) -> str:
        """For example "empty_text: 3, missing_text: 1"."""
        return ", ".join(f"{reason}: {number}" for reason, number in self.num_by_reason.items() if number)
