"""One file per stage; each holds one function that makes the stage's asset for a corpus or an experiment."""
