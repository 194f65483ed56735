"""Whether a line is a document: one JSON value in UTF-8, as Python's `json` reads it."""

import dataclasses
import json

FAULT_REASONS = ("not_utf8", "not_json", "too_deeply_nested", "too_many_digits")


@dataclasses.dataclass(frozen=True)
class LineFault:
    """Why a line is no document: `reason`, one of `FAULT_REASONS`, for counting; `message` for people."""

    reason: str
    message: str


def find_fault(line: bytes) -> LineFault | None:
    """Why `json` cannot read a line (without its LF), or None if it can.

    A byte order mark, a CR at the end, NaN, Infinity and escaped lone surrogates are no faults. Other encodings than
    UTF-8, which `json` would guess, are faults, because the stages that follow do not guess.
    """
    try:
        json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return LineFault("not_utf8", f"byte {error.start + 1} of the line is not UTF-8")
    except json.JSONDecodeError as error:
        return LineFault(
            "not_json", f"not valid JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1} of the line"
        )
    except RecursionError:
        return LineFault("too_deeply_nested", "nested too deeply to be read")
    except ValueError:  # Python's limit for turning digits into an integer
        return LineFault("too_many_digits", "a number has too many digits to be read")
    return None
