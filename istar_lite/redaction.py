"""A ready-made redaction: `Memory(path, redact=redact_secrets)` keeps keys and tokens of well-known shapes out of the
file. What was a secret becomes `[redacted: GitHub Token]`; the rest of the text stays as it is.

The shapes of the commonest ones are here. Where detect-secrets is installed (`pip install "istar-lite[redact]"`), a
library that is kept up with what providers hand out, its patterns are used too. Only shapes that nothing else has are
looked for: guessing by disorder ("this looks random") would eat ids, hashes and words of other languages. So this is
a net for slips, not a promise: a password in plain words passes through.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

_SHAPES = {
    "Private Key": r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----[\s\S]*?"
    r"(?:-----END [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----|\Z)",
    "AWS Access Key": r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b",
    "GitHub Token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "GitLab Token": r"\bgl(?:pat|dt|ft|soat|rt|ptt|agent)-[\w-]{20,}",
    "API Key": r"\bsk-(?:ant-|proj-|svcacct-|or-)?[A-Za-z0-9_-]{20,}",
    "Google API Key": r"\bAIza[\w-]{35}\b",
    "Hugging Face Token": r"\bhf_[A-Za-z0-9]{30,}\b",
    "Slack Token": r"\bxox[abeoprs]-[\w-]{10,}",
    "Stripe Access Key": r"\b[rs]k_live_[0-9A-Za-z]{16,}",
    "npm Token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "PyPI Token": r"\bpypi-AgE[\w-]{50,}",
    "JSON Web Token": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",
    "Bearer Token": r"(?i:(?<=\bbearer ))[\w.~+/-]{20,}=*",
    "Password": r"(?<=://)[^\s:/@\[\]]{1,200}:[^\s:/@\[\]]{1,200}(?=@)",
}
# Of the library: addresses are no keys; a private key is more than its first line; and these patterns take seconds for
# a text made to be slow. Their shapes are above.
_LEFT_OUT = (
    "Public IP (ipv4)",
    "Private Key",
    "Basic Auth Credentials",
    "OpenAI Token",
    "NPM tokens",
    "JSON Web Token",
)


def redact_secrets(text: str) -> str:
    """`text` with keys and tokens of well-known shapes replaced by what they were."""
    for name, pattern in _patterns():
        text = pattern.sub(lambda found, name=name: _replaced(found, name), text)  # type: ignore[misc]  # bound at once
    return text


def _replaced(found: re.Match[str], name: str) -> str:
    """The match without its secret: some patterns name it in a group, and the words around it stay."""
    group = next((at for at, value in enumerate(found.groups(), 1) if value and len(value) >= 16), 0)
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    whole = found.group()
    return f"{whole[:start]}[redacted: {name}]{whole[end:]}"


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    own = [(name, re.compile(pattern)) for name, pattern in _SHAPES.items()]
    return (*own, *_of_the_library())


def _of_the_library() -> Iterator[tuple[str, re.Pattern[str]]]:
    if importlib.util.find_spec("detect_secrets") is None:
        return
    # Imported here: it costs half a second, and only who redacts pays.
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    kinds: dict[str, Any] = get_mapping_from_secret_type_to_class()
    for name, kind in sorted(kinds.items()):
        if issubclass(kind, RegexBasedDetector) and name not in _LEFT_OUT:
            yield from ((name, pattern) for pattern in kind.denylist)
