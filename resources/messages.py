"""The ways by which people are notified of problems: Slack, PagerDuty, any webhook, mail. Each is tried once and may fail.

`orchestration.policies.alert` decides which messages are due. No URL and no password is in an error: whoever holds the URL
of a webhook may post there.
"""

from __future__ import annotations

import json
import smtplib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from http.client import HTTPException
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lakeproof.config.section.alerts import AlertsConfig, EmailConfig
from lakeproof.errors import TransientError

# A sensor's tick must end within 60 s, and there are four ways.
TIMEOUT_S = 8.0
_LINES_MAX = 20
_TEXT_MAX = 500


@dataclass(frozen=True, slots=True)
class Line:
    """A message in words: `event` is problem, worse, lasts or over; `url` is a page in the UI, or empty."""

    event: str
    key: str
    kind: str
    severity: str
    title: str
    text: str
    since: str
    url: str

    def in_words(self) -> str:
        """Return it as one line."""
        mark = "OK" if self.event == "over" else self.severity.upper()
        state = {"worse": " (worse)", "lasts": f" (since {self.since})", "over": f" is over (since {self.since})"}
        parts = [f"{mark}: {self.title}{state.get(self.event, '')}", self.text[:_TEXT_MAX], self.url]
        return " | ".join(part for part in parts if part)


class Notifier(Protocol):
    """One way of notifying people; `send` takes `takes` lines at most, and raises TransientError if it fails."""

    name: str
    takes: int

    def send(self, lines: Sequence[Line]) -> None: ...


def notifiers(config: AlertsConfig) -> list[Notifier]:
    """Return the configured ways."""
    result: list[Notifier] = []
    if config.slack is not None:
        result.append(_Slack(config))
    if config.webhook is not None:
        result.append(_Webhook(config))
    if config.email is not None:
        result.append(_Email(config))
    if config.pagerduty is not None:
        result.append(_PagerDuty(config))
    return result


def _listed(lines: Sequence[Line]) -> str:
    more = [f"and {len(lines) - _LINES_MAX} more"] if len(lines) > _LINES_MAX else []
    return "\n".join([*(line.in_words() for line in lines[:_LINES_MAX]), *more])


class _Slack:
    name, takes = "slack", 10_000

    def __init__(self, config: AlertsConfig) -> None:
        assert config.slack is not None  # noqa: S101  its own caller has looked
        self._url = config.slack.url

    def send(self, lines: Sequence[Line]) -> None:
        # Slack reads these three in a text.
        text = _listed(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        _post(self.name, self._url.resolve(), {"text": text})


class _Webhook:
    name, takes = "webhook", 10_000

    def __init__(self, config: AlertsConfig) -> None:
        assert config.webhook is not None  # noqa: S101  its own caller has looked
        self._config = config.webhook

    def send(self, lines: Sequence[Line]) -> None:
        authorization = self._config.authorization
        headers = {} if authorization is None else {"Authorization": authorization.resolve()}
        messages = [{name: getattr(line, name) for name in Line.__slots__} for line in lines]
        _post(self.name, self._config.url.resolve(), {"from": "lakeproof", "messages": messages}, headers)


class _PagerDuty:
    # One event is about one incident.
    name, takes = "pagerduty", 1

    def __init__(self, config: AlertsConfig) -> None:
        assert config.pagerduty is not None  # noqa: S101  its own caller has looked
        self._config = config.pagerduty

    def send(self, lines: Sequence[Line]) -> None:
        for line in lines:
            _post(self.name, self._config.url, self._event(line))

    def _event(self, line: Line) -> dict[str, object]:
        event: dict[str, object] = {
            "routing_key": self._config.routing_key.resolve(),
            "event_action": "resolve" if line.event == "over" else "trigger",
            "dedup_key": f"lakeproof/{line.key}"[:255],
        }
        if line.event != "over":
            event["client"] = "lakeproof"
            event["payload"] = {
                "summary": line.title[:1024],
                "source": line.key,
                "severity": "warning" if line.severity == "warn" else "error",
                "class": line.kind,
                "custom_details": {"text": line.text, "since": line.since},
            }
            if line.url:
                event["links"] = [{"href": line.url, "text": "Dagster"}]
        return event


class _Email:
    name, takes = "email", 10_000

    def __init__(self, config: AlertsConfig) -> None:
        assert config.email is not None  # noqa: S101  its own caller has looked
        self._config = config.email

    def send(self, lines: Sequence[Line]) -> None:
        mail = EmailMessage()
        mail["From"], mail["To"] = self._config.sender, ", ".join(self._config.to)
        first = " ".join(lines[0].in_words().split())[:150]
        mail["Subject"] = first if len(lines) == 1 else f"{first} and {len(lines) - 1} more"
        mail.set_content(_listed(lines))
        try:
            _mail(self._config, mail)
        except (OSError, smtplib.SMTPException) as error:
            raise _failed(self.name, f"the mail server {self._config.host} did not take it", error) from None


def _mail(config: EmailConfig, mail: EmailMessage) -> None:
    context = ssl.create_default_context()
    if config.tls == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(config.host, config.port, timeout=TIMEOUT_S, context=context)
    else:
        server = smtplib.SMTP(config.host, config.port, timeout=TIMEOUT_S)
    with server:
        if config.tls == "starttls":
            server.starttls(context=context)
        if config.user is not None and config.password is not None:
            server.login(config.user, config.password.resolve())
        server.send_message(mail)


class _NoRedirect(HTTPRedirectHandler):
    """Another address would get the message, and the header with the secret."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow none."""


_opener = build_opener(_NoRedirect)


def _post(way: str, url: str, document: Mapping[str, object], headers: Mapping[str, str] | None = None) -> None:
    try:
        body = json.dumps(document).encode()
        request = Request(url, body, {"Content-Type": "application/json", **(headers or {})})  # noqa: S310  checked below
        if request.type not in {"http", "https"}:
            raise _failed(way, "its address begins with neither http:// nor https://")
        with _opener.open(request, timeout=TIMEOUT_S):
            pass
    except HTTPError as error:
        error.close()
        raise _failed(way, f"the server answered {error.code}") from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        # These errors may quote the URL.
        raise _failed(way, "the server did not answer", error) from None


def _failed(way: str, reason: str, error: Exception | None = None) -> TransientError:
    cause = "" if error is None else f" ({type(error).__name__})"
    return TransientError(
        f"alerts.{way}", reason + cause, "see to the address, the secret and the network; it is sent again"
    )
