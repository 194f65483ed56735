"""LLM pre-training from raw text to a Hugging Face model, every stage a Dagster asset."""

__version__ = "0.1.0"
