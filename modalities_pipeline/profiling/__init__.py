"""Steppable components and the profilers that watch them."""
