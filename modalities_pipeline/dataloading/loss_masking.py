"""A collator around another one that leaves everything but the answers of a conversation out of the loss."""

import logging

import torch

from modalities_pipeline.batch import DatasetBatch
from modalities_pipeline.dataloading.collator_configs import LossMaskingTokenConfig, OnBadRow
from modalities_pipeline.dataloading.collators import CollateFnIF
from modalities_pipeline.dataloading.datasets import Sample
from modalities_pipeline.exceptions import BatchStateError, ConfigError, UserError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

logger = logging.getLogger(__name__)


class LossMaskingCollateFnWrapper(CollateFnIF):
    """Replaces all targets that do not stand between a begin and an end mark by `loss_ignore_index`.

    A row without marks is masked completely; what follows the last begin mark is kept to the end of the row. What
    happens to a row whose marks do not alternate, begin mark first (because its block starts inside an answer, say):

    * `on_bad_row` "error", as in Modalities: an error. And as there, targets in which one of the two marks is found in
      no row at all are masked completely, with a warning.
    * `on_bad_row` "mask": that row is masked completely, whatever the other rows are. Each row is judged by itself.

    Attributes:
        num_rows: rows of targets masked so far by this process; a worker process of a data loader counts for itself.
        num_masked_rows: rows of these that have no token left in the loss; logged when their number reaches a power of
            ten.
    """

    def __init__(
        self,
        wrapped_collate_fn: CollateFnIF,
        target_keys_to_mask: list[str],
        loss_ignore_index: int,
        mask_tokens: LossMaskingTokenConfig,
        tokenizer: TokenizerWrapper,
        on_bad_row: OnBadRow = "error",
    ) -> None:
        """Look up the marks.

        Raises:
            ConfigError: a mark is not in the vocabulary, or both are the same token.
        """
        self.wrapped_collate_fn = wrapped_collate_fn
        self.target_keys_to_mask = target_keys_to_mask
        self.loss_ignore_index = loss_ignore_index
        self.on_bad_row = on_bad_row
        self.begin_token_id = _token_id(tokenizer, mask_tokens.b_include_to_loss_token)
        self.end_token_id = _token_id(tokenizer, mask_tokens.e_include_to_loss_token)
        if self.begin_token_id == self.end_token_id:
            raise ConfigError(
                f"mask_loss_collator_wrapper: '{mask_tokens.b_include_to_loss_token}' and "
                f"'{mask_tokens.e_include_to_loss_token}' are the same token ({self.begin_token_id}). Use two."
            )
        self.num_rows = 0
        self.num_masked_rows = 0

    def __call__(self, batch: list[Sample]) -> DatasetBatch:
        """The wrapped collator's batch with masked targets, int64 of the same shape (batch, T).

        Raises:
            BatchStateError: a target is missing.
            UserError: the marks of a row do not alternate, and `on_bad_row` is "error".
        """
        collated = self.wrapped_collate_fn(batch)
        for key in self.target_keys_to_mask:
            if key not in collated.targets:
                raise BatchStateError(
                    f"mask_loss_collator_wrapper: there is no target '{key}' (there are: "
                    f"{', '.join(collated.targets)}). Mend target_keys_to_mask."
                )
            collated.targets[key] = self._masked(collated.targets[key].to(torch.int64), key)
        return collated

    def _masked(self, targets: torch.Tensor, key: str) -> torch.Tensor:
        begins, ends = targets == self.begin_token_id, targets == self.end_token_id
        changes = torch.zeros(len(targets), targets.shape[1] + 1, dtype=torch.int64, device=targets.device)
        changes[:, :-1] -= ends.to(torch.int64)
        changes[:, 1:] += begins.to(torch.int64)  # one further, since the mark itself is not in the loss
        depth = changes.cumsum(dim=1)
        kept = depth[:, :-1] == 1
        is_bad = ((depth < 0) | (depth > 1)).any(dim=1)
        if self.on_bad_row == "mask":
            kept[is_bad] = False
        elif not begins.any() or not ends.any():
            logger.warning(
                "No row of a batch has a mark of %s in its targets '%s': all of them are left out of the loss.",
                "the begin" if not begins.any() else "the end",
                key,
            )
            kept[:] = False
        elif is_bad.any():
            self._refuse(targets, int(is_bad.nonzero()[0]), key)
        self._count(kept)
        return torch.where(kept, targets, self.loss_ignore_index)

    def _refuse(self, targets: torch.Tensor, row: int, key: str) -> None:
        marks = [
            f"{'begin' if token == self.begin_token_id else 'end'} at {position}"
            for position, token in enumerate(targets[row].tolist())
            if token in (self.begin_token_id, self.end_token_id)
        ]
        raise UserError(
            f"mask_loss_collator_wrapper: the marks in row {row} of the targets '{key}' do not alternate, begin mark "
            f"first: {', '.join(marks[:10])}. Blocks that start or end inside an answer look like this; set "
            "on_bad_row: mask to leave such rows out of the loss."
        )

    def _count(self, kept: torch.Tensor) -> None:
        before = self.num_masked_rows
        self.num_rows += len(kept)
        self.num_masked_rows += int((~kept.any(dim=1)).sum())
        if len(str(self.num_masked_rows)) > len(str(before)) or (self.num_masked_rows and not before):
            logger.warning("%d of %d rows so far have no token in the loss.", self.num_masked_rows, self.num_rows)


def _token_id(tokenizer: TokenizerWrapper, token: str) -> int:
    token_id = tokenizer.find_token_id(token)
    if token_id is None:
        raise ConfigError(
            f"mask_loss_collator_wrapper: '{token}' is not in the tokenizer's vocabulary. Its special tokens are: "
            f"{', '.join(tokenizer.special_tokens) or 'none'}."
        )
    return token_id
