"""Tokenizers: those of Hugging Face and SentencePiece behind one interface, their fingerprint, and training one."""
