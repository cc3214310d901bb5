"""The ways by which people are notified of problems: Slack, PagerDuty, any webhook, mail. Each is tried once and may fail.

`orchestration.policies.alert` decides which messages are due. No URL and no password is in an error: whoever holds the URL
of a webhook may post there.
"""

from __future__ import annotations

import json
import smtplib
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from email.message import EmailMessage
from functools import partial
from http.client import HTTPException
from typing import Literal
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lakeproof.config.section.alerts import AlertsConfig, EmailConfig, PagerDutyConfig, SlackConfig, WebhookConfig
from lakeproof.errors import TransientError

# A sensor's tick must end within 60 s, and there are four ways.
TIMEOUT_S = 8.0
_LINES_MAX = 20
_TEXT_MAX = 500


AlertSeverity = Literal["warn", "error"]


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that is wrong now: `key` is the same as long as it is the same problem; `path` is its page in the UI."""

    key: str
    kind: str
    severity: AlertSeverity
    title: str
    text: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A problem to tell of: new, grown worse, lasting still, or over; `since` in seconds since 1970."""

    event: Literal["problem", "worse", "lasts", "over"]
    problem: Alert
    since: float

    @property
    def time(self) -> str:
        """Return the time since when, for people."""
        return datetime.fromtimestamp(self.since, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")

    def url(self, ui: str | None) -> str:
        """Return the problem's page in the UI, empty if it has none."""
        return ui.rstrip("/") + self.problem.path if ui and self.problem.path else ""

    def in_words(self, ui: str | None) -> str:
        """Return it as one line."""
        mark = "OK" if self.event == "over" else self.problem.severity.upper()
        states = {"worse": " (worse)", "lasts": f" (since {self.time})", "over": f" is over (since {self.time})"}
        title = f"{mark}: {self.problem.title}{states.get(self.event, '')}"
        return " | ".join(part for part in (title, self.problem.text[:_TEXT_MAX], self.url(ui)) if part)


@dataclass(frozen=True, slots=True)
class Notifier:
    """One way of notifying people; `send` takes `takes` messages at most, and raises TransientError if it fails."""

    name: str
    send: Callable[[Sequence[Message]], None]
    takes: int = 10_000


def notifiers(config: AlertsConfig) -> list[Notifier]:
    """Return the configured ways."""
    ways = []
    if config.slack is not None:
        ways.append(Notifier("slack", partial(_slack, config.slack, config.ui)))
    if config.webhook is not None:
        ways.append(Notifier("webhook", partial(_webhook, config.webhook, config.ui)))
    if config.email is not None:
        ways.append(Notifier("email", partial(_email, config.email, config.ui)))
    if config.pagerduty is not None:
        # One event is about one incident.
        ways.append(Notifier("pagerduty", partial(_pagerduty, config.pagerduty, config.ui), takes=1))
    return ways


def _listed(messages: Sequence[Message], ui: str | None) -> str:
    more = [f"and {len(messages) - _LINES_MAX} more"] if len(messages) > _LINES_MAX else []
    return "\n".join([*(message.in_words(ui) for message in messages[:_LINES_MAX]), *more])


def _slack(config: SlackConfig, ui: str | None, messages: Sequence[Message]) -> None:
    # Slack reads these three in a text.
    text = _listed(messages, ui).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    _post("slack", config.url.resolve(), {"text": text})


def _webhook(config: WebhookConfig, ui: str | None, messages: Sequence[Message]) -> None:
    headers = {} if config.authorization is None else {"Authorization": config.authorization.resolve()}
    listed = []
    for message in messages:
        about = asdict(message.problem)
        del about["path"]
        listed.append({"event": message.event, **about, "since": message.time, "url": message.url(ui)})
    _post("webhook", config.url.resolve(), {"from": "lakeproof", "messages": listed}, headers)


def _pagerduty(config: PagerDutyConfig, ui: str | None, messages: Sequence[Message]) -> None:
    for message in messages:
        problem, url = message.problem, message.url(ui)
        event: dict[str, object] = {
            "routing_key": config.routing_key.resolve(),
            "event_action": "resolve" if message.event == "over" else "trigger",
            "dedup_key": f"lakeproof/{problem.key}"[:255],
        }
        if message.event != "over":
            event["client"] = "lakeproof"
            event["payload"] = {
                "summary": problem.title[:1024],
                "source": problem.key,
                "severity": "warning" if problem.severity == "warn" else "error",
                "class": problem.kind,
                "custom_details": {"text": problem.text, "since": message.time},
            }
            if url:
                event["links"] = [{"href": url, "text": "Dagster"}]
        _post("pagerduty", config.url, event)


def _email(config: EmailConfig, ui: str | None, messages: Sequence[Message]) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"] = config.sender, ", ".join(config.to)
    first = " ".join(messages[0].in_words(ui).split())[:150]
    mail["Subject"] = first if len(messages) == 1 else f"{first} and {len(messages) - 1} more"
    mail.set_content(_listed(messages, ui))
    try:
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
    except (OSError, smtplib.SMTPException) as error:
        raise _failed("email", f"the mail server {config.host} did not take it", error) from None


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
