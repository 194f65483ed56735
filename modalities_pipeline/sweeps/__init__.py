"""Sweeps: one config with many combinations of settings, each in a folder of its own. Imports no torch."""
