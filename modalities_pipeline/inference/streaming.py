"""Text of tokens that come one by one."""

from collections.abc import Callable, Sequence

_INCOMPLETE = "\ufffd"  # what decoders make of the first bytes of a character


class TextStream:
    """Decodes tokens as they come; a character that several tokens make up is given out whole, once.

    Tokens are decoded together with some that were given out before, as decoders treat the beginning of a text in
    their own ways.

    Args:
        decode: ids -> text.
        token_ids: what stands before the text, such as the prompt.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], token_ids: Sequence[int]) -> None:
        self._decode = decode
        self._token_ids = list(token_ids)
        self._start, self._num_done = 0, len(self._token_ids)

    def push(self, token_id: int) -> str:
        """The text that is certain with this token, perhaps none yet."""
        self._token_ids.append(token_id)
        text = self._pending()
        if not text or text.endswith(_INCOMPLETE):
            return ""
        self._start, self._num_done = self._num_done, len(self._token_ids)
        return text

    def finish(self) -> str:
        """What is still held back, when no more tokens come."""
        return self._pending()

    def _pending(self) -> str:
        before = self._decode(self._token_ids[self._start : self._num_done])
        return self._decode(self._token_ids[self._start :])[len(before) :]
