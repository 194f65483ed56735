"""Its presence puts this folder on the path of the tests in the folders below, for the modules they share."""
