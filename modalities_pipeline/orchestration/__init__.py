"""The Dagster layer: it chooses paths, compares fingerprints, starts processes and reports."""
