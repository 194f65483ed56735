"""YAML as text: reading it into values with positions, writing values as YAML."""
