"""Everything that is wrong with a config, found before anything is built."""
