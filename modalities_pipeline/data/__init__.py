"""From raw text to packed tokens: the data stages, their file formats, and how every stage writes its output."""
