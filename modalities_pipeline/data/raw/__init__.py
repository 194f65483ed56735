"""Reading raw JSON-lines files: line by line, checked, and noticing when they change."""
