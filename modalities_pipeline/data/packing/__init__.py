"""The steps of stage tokenized_pack: from lines to texts to token ids, batch by batch."""
