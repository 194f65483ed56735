"""From a training checkpoint to formats that others read."""
