"""From packed tokens on disk to batches: datasets, samplers, collators, the data loader."""
