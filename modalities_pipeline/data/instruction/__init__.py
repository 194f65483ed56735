"""The parts of stage instruction_data: its config and its chat template."""
