"""The command line: one module for each group of words; what a word needs is imported when it is used."""
