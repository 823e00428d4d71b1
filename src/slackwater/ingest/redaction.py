"""Redaction: secrets and their removal from error messages, whatever spelling they have there.

Every error of a database, of an HTTP API or of a job file passes through here before it is shown, logged or
recorded. A secret that has a name, such as ``${env:TOKEN}``, is replaced by its name, any other by ``…``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, quote_plus

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

SHORTEST_SECRET: Final = 4
"""A shorter text, such as ``v1``, is not redacted: it is hardly a credential, and occurs in many messages."""
_WITHHELD: Final = "is not valid (details are withheld because the value comes from the environment)"
_SHORTEST_PIECE: Final = 3
_HIDDEN: Final = ("password", "sslpassword", "passfile")
_PASSWORD_OPTION: Final = re.compile(r"(?i)(?:password|pwd)=([^&;]+)")
_HEADER_VALUES: Final = re.compile(r"=\"?([^;,\s\"]+)")
"""The values in a header such as a cookie."""
_SECRET_WORDS: Final = (
    "password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "authorization",
    "authentication", "apikey", "signature", "cookie",
)  # fmt: skip
_SECRET_STEMS: Final = re.compile(
    r"passw|passphrase|pwd|secret|token|credential|auth|signature|cookie|bearer"
)
_SECRET_KEYS: Final = re.compile(r"(?:api|access|private|secret|account|shared)[^a-z0-9]?key")
_WORD: Final = re.compile(r"[a-z]+")
_ALIKE: Final = 0.8
_ASSIGNMENT: Final = re.compile(r"""(["']?)([\w.-]+)\1(\s*[:=]\s*)("[^"]*"|'[^']*'|[^\s,;&{}\[\]"']+)""")
"""A name and its value, as in JSON, in options and in a query: ``"password": "x"``, ``token=x``."""
_CREDENTIAL: Final = re.compile(
    r"(?<=://)[^/\s@]*:[^/\s]*(?=@)|(?i:\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*|\bgh[opsur]_\w{20,}|\bxox[abprs]-[\w-]{8,}|\bsk-[\w-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
)
"""Texts that are credentials by their form: accounts in addresses, authorization headers, common keys."""


def resembles_secret(name: str) -> bool:
    """Whether a name, even a misspelt one, is that of a secret.

    >>> [resembles_secret(name) for name in ("ms.source.jdbc.pasword", "apiKey", "ms.target.key")]
    [True, True, False]
    """
    lowered = name.lower()
    if _SECRET_STEMS.search(lowered) or _SECRET_KEYS.search(lowered):
        return True
    return any(
        difflib.SequenceMatcher(None, word, known).ratio() >= _ALIKE
        for word in _WORD.findall(lowered)
        for known in _SECRET_WORDS
    )


def without_credentials(text: str) -> str:
    """Replace what is a secret by its name or by its form in a text.

    >>> without_credentials("{'user': 'app', 'pasword': 'hunter2'} at https://app:hunter2@db.example")
    "{'user': 'app', 'pasword': …} at https://…@db.example"
    """

    def assigned(found: re.Match[str]) -> str:
        quoted, name, sign, _ = found.groups()
        return f"{quoted}{name}{quoted}{sign}…" if resembles_secret(name) else found[0]

    return _CREDENTIAL.sub("…", _ASSIGNMENT.sub(assigned, text))


@dataclass
class Secrets:
    """Values that must not be shown, each under the name that is shown in its place.

    >>> Secrets({"${env:TOKEN}": "s3cret"}).mask("Bearer s3cret")
    'Bearer ${env:TOKEN}'
    """

    values: dict[str, str] = field(default_factory=dict, repr=False)

    def mask(self, text: str) -> str:
        """Replace every secret in a text, also where it is quoted, escaped or percent-encoded."""
        for name, value in sorted(self.values.items(), key=lambda item: -len(item[1])):
            spellings = {
                *(value, repr(value)[1:-1], json.dumps(value)[1:-1]),
                *(quote(value), quote(value, safe=""), quote_plus(value)),
            }
            for spelling in sorted(spellings, key=len, reverse=True):
                text = text.replace(spelling, name)
        return text

    def mask_reason(self, text: str) -> str:
        """Replace every secret in a reason; withhold the reason if a piece of a secret is left in it.

        >>> Secrets({"${env:TOKEN}": "abcd-efgh"}).mask_reason("'efgh' is not a number")
        'is not valid (details are withheld because the value comes from the environment)'
        """
        masked = self.mask(text)
        bare = masked
        for name in self.values:
            bare = bare.replace(name, "")
        pieces = {piece for value in self.values.values() for piece in re.split(r"\W+", value)}
        if any(len(piece) >= _SHORTEST_PIECE and piece in bare for piece in pieces):
            return _WITHHELD
        return masked

    def show(self, value: object) -> str:
        """The representation of a value without secrets, as an error shows it."""
        return repr(self._masked(value))

    def _masked(self, value: object) -> object:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self._masked(key): self._masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._masked(item) for item in value]
        return value

    def __bool__(self) -> bool:
        return bool(self.values)


def numbered(secrets: Iterable[str]) -> dict[str, str]:
    """Secrets without a name of their own, under numbered names.

    >>> numbered(["hunter-22"])
    {'(secret 0)': 'hunter-22'}
    """
    return {f"(secret {number})": secret for number, secret in enumerate(secrets)}


def hide(text: str, secrets: Iterable[str | None]) -> str:
    """Replace every secret in a text by ``…``, the longest first.

    >>> hide("no such user app:abc", ["abc", None])
    'no such user app:…'
    """
    for secret in sorted((secret for secret in secrets if secret), key=lambda each: (-len(each), each)):
        text = text.replace(secret, "…")
    return text


def url_secrets(url: str) -> list[str]:
    """The secrets in a database or HTTP address, in every spelling that a message can have, longest first.

    The address of a database as a whole is one of them; that of an HTTP API helps to find a mistake and is
    not.

    >>> url_secrets("postgresql://app:a%20b@db.example/shop")
    ['postgresql://app:a%20b@db.example/shop', 'a%20b', 'a b', 'a+b']
    >>> url_secrets("jdbc:derby:shop;user=app;password=a b")
    ['jdbc:derby:shop;user=app;password=a b', 'a b']
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return [url, *_PASSWORD_OPTION.findall(url)]
    options = parsed.normalized_query
    passwords = [parsed.password, *(one for name in _HIDDEN for one in options.get(name, ()))]
    written = re.search(r"//[^/@]*?:([^/]*)@", url)
    found = {spelt for one in passwords if one for spelt in (one, quote(one, safe=""), quote_plus(one))}
    whole = set() if url.startswith("http") else {url}
    return sorted(
        {*whole, *found, *([written[1]] if written else [])} - {""}, key=lambda one: (-len(one), one)
    )


def header_secrets(text: str) -> list[str]:
    """A credential as it is sent, and the parts of it that a server may repeat.

    >>> header_secrets("Token abc-123"), header_secrets("a=b; session=5e55")
    (['Token abc-123', 'abc-123'], ['a=b; session=5e55', '5e55', 'session=5e55'])
    """
    parts = (text, *_HEADER_VALUES.findall(text), *text.split(" ", 2)[1:2])
    return [part for part in dict.fromkeys(parts) if len(part) >= SHORTEST_SECRET]
