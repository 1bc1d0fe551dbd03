"""What happens to text before it is stored or compared: one definition each of clean, normal, and long."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata

_SPACES = re.compile(r"\s+")
# Of Arabic and Urdu, Devanagari, Armenian, Ethiopic, Burmese, Khmer and Tibetan too.
_FINAL_PUNCTUATION = ".!?…。！？｡,;:،؛؟۔।॥։።၊။។།"


def clean(text: str) -> str:
    """`text` as SQLite and UTF-8 can hold it.

    A surrogate pair written as two halves is joined, a lone half becomes U+FFFD (binding it would raise), and so
    does NUL, at which SQLite's own `length` and the shell stop reading.
    """
    if text.isascii():
        return text if "\0" not in text else text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "\ufffd")


def normalise(text: str) -> str:
    """The form in which two statements are "the same": NFKC, case folded, spaces single, no final punctuation."""
    folded = unicodedata.normalize("NFKC", clean(text)).casefold()
    return _SPACES.sub(" ", folded).strip().rstrip(_FINAL_PUNCTUATION + " ")


def digest(text: str, salt: bytes = b"") -> str:
    """SHA-256 (hex) of the normalised text. Salted for tombstones: digests of short secrets can be guessed."""
    return hashlib.sha256(salt + normalise(text).encode()).hexdigest()


def estimate_tokens(text: str) -> int:
    """Tokens of `text` where the host gives no counter: a quarter of its characters, rounded up."""
    return math.ceil(len(text) / 4)


def is_blank(text: str) -> bool:
    """Nothing to see: empty, white space, or only invisible characters (zero width, controls)."""
    return not any(unicodedata.category(character)[0] not in "ZC" for character in text)


def shorten(text: str, length: int) -> str:
    """At most `length` characters of `text`, the cut marked by an ellipsis inside that length."""
    if len(text) <= length:
        return text
    return text[: max(length - 1, 0)].rstrip() + "…" if length > 0 else ""
