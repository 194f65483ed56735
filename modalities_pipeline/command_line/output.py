"""Printing what a word was asked for."""

import io
import os
import sys

_EXIT_CODE = 141  # that of a program which the signal SIGPIPE ends


def emit(text: str) -> None:
    """Print on stdout at once; what its encoding does not know is written as Python writes it, such as \\u20ac.

    Raises:
        SystemExit: whoever read the output has closed it, as `head` does.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python itself flushes at the end
        raise SystemExit(_EXIT_CODE) from None
