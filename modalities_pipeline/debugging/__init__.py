"""Watching the tensors of a model while it runs, and making runs repeatable."""
