"""The secrets of a job, and their removal from the errors of its units."""

from __future__ import annotations

import base64
import re
from typing import Final

from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.redaction import (
    Secrets,
    header_secrets,
    hide,
    numbered,
    resembles_secret,
    url_secrets,
)

_FIELD: Final = re.compile(r"\{\{\s*(.+?)\s*\}\}")


def redact(text: str, job: Job) -> str:
    """Remove every secret of a job from a text: of its environment, its addresses and its credentials.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> redact("no answer for hunter-22", parse_job({"ms.source.jdbc.password": "hunter-22"}))
    'no answer for …'
    """
    settings = job.settings
    for given in (settings.source_url, settings.target_url, settings.source_jdbc_password):
        if given is not None:
            text = hide(text, url_secrets(given.get_secret_value()))
    return Secrets(numbered(_credentials(job))).mask(job.secrets.mask(text))


def http_secrets(job: Job) -> Secrets:
    """The secrets that HTTP errors of a job must not show: of its environment and of its authentication."""
    authentication = job.settings.http_authentication
    written = [] if authentication is None else [text for text in authentication.texts if "{{" not in text]
    return Secrets({**numbered(written), **job.secrets.values})


def _credentials(job: Job) -> list[str]:
    """The credentials that the job file itself has, as they are sent, and parts that a server may repeat."""
    settings, authentication = job.settings, job.settings.http_authentication
    record = job.inputs.authentication

    def filled(text: str) -> str:
        return _FIELD.sub(lambda found: record.get(found[1]) or found[0], text)

    written = authentication.texts if authentication else ()
    texts = [filled(text) for text in (*written, *settings.http_headers.values())]
    texts += [str(value) for name, value in settings.source_options.items() if resembles_secret(name)]
    if authentication is not None and authentication.method == "basic":
        account = f"{filled(str(authentication.user))}:{filled(str(authentication.password))}"
        texts.append(base64.b64encode(account.encode()).decode())
    if settings.source_jdbc_password is not None:
        texts.append(settings.source_jdbc_password.get_secret_value())
    return list(dict.fromkeys(part for text in texts for part in header_secrets(text)))
