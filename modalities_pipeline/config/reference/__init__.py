"""Components in words: for the command line and docs/components.md."""
