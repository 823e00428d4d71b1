"""HTTP requests of a unit, built from templates so that no value can change the structure of a request.

Values are percent-encoded in a URL and in a form, escaped in JSON, and rejected in a header that they would
terminate. A unit named ``a&admin=true`` therefore requests exactly that.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

import httpx

from slackwater.errors import InvalidArgument
from slackwater.ingest.jobfile.http_keys import Authentication
from slackwater.ingest.jobfile.parameters import fill_in, names_in
from slackwater.ingest.redaction import SHORTEST_SECRET

_ADDRESS: Final = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE | re.DOTALL)
_JSON_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\{\{\s*([^{}]*?)\s*\}\}', re.DOTALL)
_JSON_WORD: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null", re.ASCII)
_IN_HOST: Final = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_IN_HEADER: Final = re.compile(r"[\t\x20-\x7e]*", re.ASCII)
_TELLING: Final = re.compile(r"auth|token|key|secret|password|signature|cookie", re.IGNORECASE)
_BODY: Final = "ms.source.http.body"
_URL: Final = "ms.source.url"
_URL_FIX: Final = "write it like https://api.example.com/v1/orders?since={{low}}"


@dataclass(frozen=True)
class Request:
    """An HTTP request; messages show only its method, host and path.

    >>> Request("GET", "https://api.example.com/orders?key=abc")
    Request(GET https://api.example.com/orders)
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    always: tuple[tuple[str, str], ...] = ()
    """Query parameters of every request, including those to a next link."""

    @property
    def shown(self) -> str:
        """The request without anything that may be a secret."""
        url = httpx.URL(self.url)
        port = "" if url.port is None else f":{url.port}"
        return f"{self.method} {url.scheme}://{url.host}{port}{url.path}"

    def with_parameters(self, location: str, values: Mapping[str, str | int]) -> Request:
        """A copy of the request with parameters set, in its query or in its JSON body.

        >>> Request("GET", "http://h/?page=1&a=b").with_parameters("query", {"page": 2}).url
        'http://h/?a=b&page=2'
        """
        if location == "query":
            return replace(
                self, url=_merged(self.url, [(name, str(value)) for name, value in values.items()])
            )
        document = json.loads(self.body or "{}")
        for name, value in values.items():
            *path, last = name.split(".")
            inner = document
            for step in path:
                inner = inner.setdefault(step, {})
            inner[last] = value
        return replace(self, body=json.dumps(document, ensure_ascii=False))

    def at(self, link: str) -> Request:
        """A copy of the request for another URL, which may be relative.

        >>> Request("GET", "http://h/orders?page=1", always=(("key", "k"),)).at("?page=2").url
        'http://h/orders?page=2&key=k'
        """
        url = str(httpx.URL(self.url).join(link))
        return replace(self, url=_merged(url, self.always))

    def is_same_server(self, link: str) -> bool:
        """Whether a link points to the same server, so that credentials may be sent there.

        >>> (
        ...     Request("GET", "https://h/a").is_same_server("https://h:443/b"),
        ...     Request("GET", "https://h/").is_same_server("//g/"),
        ... )
        (True, False)
        """
        here = httpx.URL(self.url)
        there = here.join(link)
        return (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)

    def __repr__(self) -> str:
        return f"Request({self.shown})"


@dataclass(frozen=True)
class Template:
    """A request with ``{{name}}`` parameters.

    >>> asked = Template("get", "https://api.example.com/{{id}}?since={{low}}", query={"id": ("{{id}}",)})
    >>> asked.filled({"low": "2020-01-01T00:00:00Z", "id": "a&b/c"}).url
    'https://api.example.com/a%26b%2Fc?since=2020-01-01T00%3A00%3A00Z&id=a%26b%2Fc'
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    body: str | None = field(default=None, repr=False)
    authentication: Authentication | None = field(default=None, repr=False)

    def names(self) -> dict[str, set[str]]:
        """The parameter names that are used, by job key."""
        texts: dict[str, Iterable[str]] = {
            _URL: [self.url],
            "ms.source.http.headers": self.headers.values(),
            "ms.source.http.query": [text for each in self.query.values() for text in each],
            _BODY: [self.body or ""],
            "ms.source.http.authentication": () if self.authentication is None else self.authentication.texts,
        }
        return {key: set().union(*map(names_in, each)) for key, each in texts.items()}

    @property
    def body_kind(self) -> str:
        """``json``, ``form`` or ``other``, from the Content-Type header or from how the body begins."""
        declared = next((text for name, text in self.headers.items() if name.lower() == "content-type"), "")
        if "json" in declared.lower() or (not declared and (self.body or "").lstrip()[:1] in ("{", "[")):
            return "json"
        return "form" if not declared or "form-urlencoded" in declared.lower() else "other"

    def check(self) -> None:
        """Raise `InvalidArgument` if the template cannot give a valid request."""
        found = _ADDRESS.fullmatch(self.url)
        if found is None or not found[2].rpartition("@")[2]:
            raise InvalidArgument(_URL, "…", "is not the address of an HTTP API", fix=_URL_FIX)
        if self.body is None:
            return
        if self.body_kind == "json":
            try:
                json.loads(fill_json(self.body, dict.fromkeys(names_in(self.body), "0")))
            except ValueError:
                raise InvalidArgument(
                    _BODY, "…", "is not JSON", fix="correct it, or set the Content-Type header"
                ) from None
        elif self.body_kind == "other" and names_in(self.body):
            fix = "use JSON or a form, or remove {{name}}"
            raise InvalidArgument(_BODY, "…", "values cannot be escaped in a body of this type", fix=fix)

    def filled(self, values: Mapping[str, str]) -> Request:
        """The request for one unit."""
        url, user = _fill_address(self.url, values)
        headers = {name: _in_header(name, fill_in(text, values)) for name, text in self.headers.items()}
        if self.body is not None and not _has(headers, "content-type"):
            is_json = self.body_kind == "json"
            headers["Content-Type"] = "application/json" if is_json else "application/x-www-form-urlencoded"
        if user:
            _set(headers, "Authorization", _basic(user))
        always: list[tuple[str, str]] = []
        if self.authentication is not None:
            self._authenticate(self.authentication, values, headers, always)
        query = [(name, fill_in(text, values)) for name, texts in self.query.items() for text in texts]
        return Request(
            self.method.upper(),
            _merged(url, [*query, *always]),
            tuple(headers.items()),
            None if self.body is None else self._body(values),
            tuple(always),
        )

    def _body(self, values: Mapping[str, str]) -> str:
        text = str(self.body)
        if self.body_kind == "json":
            return fill_json(text, values)
        return fill_in(text, values, quote=_encoded) if self.body_kind == "form" else text

    def _authenticate(
        self,
        who: Authentication,
        values: Mapping[str, str],
        headers: dict[str, str],
        always: list[tuple[str, str]],
    ) -> None:
        if who.method == "bearer":
            token = fill_in(str(who.token), values)
            _set(headers, "Authorization", _in_header("token", f"Bearer {token}"))
        elif who.method == "basic":
            user, password = fill_in(str(who.user), values), fill_in(str(who.password), values)
            _set(headers, "Authorization", _basic(f"{user}:{password}"))
        elif who.method == "header":
            _set(headers, str(who.name), _in_header(str(who.name), fill_in(str(who.value), values)))
        else:
            always.append((str(who.name), fill_in(str(who.value), values)))


def fill_json(text: str, values: Mapping[str, str]) -> str:
    r"""Fill in a JSON template: inside quotes by escaped text, elsewhere by a number, true, false or null.

    >>> fill_json('{"id": "{{id}}", "n": {{n}}}', {"id": '"', "n": "7"})
    '{"id": "\\"", "n": 7}'
    >>> fill_json('{"n": {{n}}}', {"n": '1, "admin": true'})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.source.http.body = 'n': is neither quoted nor a number; write ...
    """

    def piece(found: re.Match[str]) -> str:
        if found[1] is None:
            return fill_in(found[0], values, quote=lambda value: json.dumps(value, ensure_ascii=False)[1:-1])
        value = fill_in(found[0], values)
        if not _JSON_WORD.fullmatch(value):
            reason, fix = "is neither quoted nor a number", f'write "{{{{{found[1]}}}}}"'
            raise InvalidArgument(_BODY, found[1], reason, fix=fix)
        return value

    return _JSON_PIECE.sub(piece, text)


def credentials_of(request: Request) -> dict[str, str]:
    """The credentials in a request, by the name to show in their place.

    >>> credentials_of(Request("GET", "http://h/?key=abcd&page=1", (("X-Token", "efgh"),)))
    {'(X-Token)': 'efgh', '(key)': 'abcd'}
    """
    found: dict[str, str] = {}
    for name, value in request.headers:
        if _TELLING.search(name):
            scheme, _, rest = value.partition(" ")
            found[f"({name})"] = rest if scheme.lower() in ("bearer", "basic") and rest else value
    pairs = [piece.partition("=")[::2] for piece in httpx.URL(request.url).query.decode("ascii").split("&")]
    always = {name for name, _ in request.always}
    for name, value in pairs:
        if unquote(name) in always or _TELLING.search(name):
            found[f"({unquote(name)})"] = unquote_plus(value)
    return {name: value for name, value in found.items() if len(value) >= SHORTEST_SECRET}


def _fill_address(template: str, values: Mapping[str, str]) -> tuple[str, str]:
    """The URL with its values filled in, and the account in it."""
    found = _ADDRESS.fullmatch(template)
    if found is None:
        raise InvalidArgument(_URL, "…", "is not the address of an HTTP API", fix=_URL_FIX)
    account, _, host = found[2].rpartition("@")
    path = "/".join(_segment(part, values) for part in found[3].split("/"))
    query = "" if found[4] is None else f"?{fill_in(found[4], values, quote=_encoded)}"
    address = f"{found[1].lower()}://{fill_in(host, values, quote=_in_host)}{path}{query}"
    try:
        return str(httpx.URL(address)), fill_in(unquote(account), values)
    except httpx.InvalidURL as error:
        raise InvalidArgument(_URL, "…", str(error).lower(), fix=_URL_FIX) from None


def _segment(part: str, values: Mapping[str, str]) -> str:
    segment = fill_in(part, values, quote=_encoded)
    if segment in (".", "..") and part != segment:
        raise InvalidArgument(
            _URL, part, f"becomes {segment!r}, which changes the path", fix="rename the unit"
        )
    return segment


def _encoded(value: str) -> str:
    return quote(value, safe="")


def _in_host(value: str) -> str:
    if not _IN_HOST.fullmatch(value):
        raise InvalidArgument(_URL, value, "is not valid in a host name", fix="use letters, digits and -")
    return value


def _in_header(name: str, value: str) -> str:
    if not _IN_HEADER.fullmatch(value):
        fix = "use printable ASCII characters"
        raise InvalidArgument(
            "ms.source.http.headers", name, "has a value that is not valid in a header", fix=fix
        )
    return value


def _basic(account: str) -> str:
    return "Basic " + base64.b64encode(account.encode()).decode("ascii")


def _set(headers: dict[str, str], name: str, value: str) -> None:
    """Set a header, replacing it in any capitalization."""
    for each in [each for each in headers if each.lower() == name.lower()]:
        del headers[each]
    headers[name] = value


def _has(headers: Mapping[str, str], name: str) -> bool:
    return any(each.lower() == name for each in headers)


def _merged(url: str, parameters: Iterable[tuple[str, str]]) -> str:
    """A URL with query parameters set; the rest of its query stays as it is."""
    added = list(parameters)
    if not added:
        return url
    names = {name for name, _ in added}
    head, _, query = url.partition("#")[0].partition("?")
    kept = [
        piece for piece in query.split("&") if piece and unquote_plus(piece.partition("=")[0]) not in names
    ]
    return f"{head}?{'&'.join([*kept, *(f'{_encoded(name)}={_encoded(value)}' for name, value in added)])}"
