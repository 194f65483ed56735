"""The entry to the command line, and what its exit codes mean."""

import os
import sys
import traceback
from collections.abc import Sequence

import click

from modalities_pipeline.command_line.root import COMPLETION_VARIABLE, PROGRAM, root
from modalities_pipeline.exceptions import ModalitiesPipelineError, OutputLockedError, OutputNotWritableError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a failure is one message on stderr.

    Raises:
        SystemExit: help or the version was asked for (0), or the usage was wrong (2).
    """
    completion = os.environ.get(COMPLETION_VARIABLE)
    if completion:
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, PROGRAM, COMPLETION_VARIABLE, completion)
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except (OutputNotWritableError, OutputLockedError) as error:
        return _fail(error, 3)
    except ModalitiesPipelineError as error:
        return _fail(error, 1)
    except MemoryError:
        return _fail("not enough memory", 3)
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            return _fail(error, 3)
        traceback.print_exc()
        return _fail("this is a fault of modalities-pipeline, please report it with the lines above", 70)
    except KeyboardInterrupt:
        return _fail("interrupted; outputs that were not finished are as they were before", 130)


def _run(arguments: list[str]) -> int:
    try:
        with root.make_context(PROGRAM, arguments) as context:
            return root.invoke(context) or 0
    except click.exceptions.Exit as end:  # of --help and --version
        raise SystemExit(end.exit_code) from None
    except click.UsageError as error:
        error.show()
        raise SystemExit(error.exit_code) from None


def _fail(error: object, exit_code: int) -> int:
    print(f"Error: {error}", file=sys.stderr, flush=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
