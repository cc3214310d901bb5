"""The section `alerts`: who is notified of problems, by which ways, and how often.

Sending does not belong here, nor finding out what is wrong: Dagster's half does both. A URL that lets its holder post, and a
password, are secrets: they are read when something is sent.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from lakeproof.config.secret import Secret
from lakeproof.config.section import Model
from lakeproof.config.values import Seconds, Text, Whole, different

Kind: TypeAlias = Literal["run", "held", "lacking", "slot", "proof", "expectation", "freshness"]


_Url = Annotated[Text, Field(pattern=r"^https?://[^\s]+$")]


class SlackConfig(Model):
    """An incoming webhook of Slack's, or of what takes the same (Mattermost, Rocket.Chat)."""

    url: Secret
    """The webhook."""


class PagerDutyConfig(Model):
    """PagerDuty's Events API v2, or what takes the same."""

    routing_key: Secret
    """The integration's key."""
    url: _Url = "https://events.pagerduty.com/v2/enqueue"
    """The API's address."""


class WebhookConfig(Model):
    """Any other service: each message is POSTed as JSON."""

    url: Secret
    """The address."""
    authorization: Secret | None = None
    """The value of the header `Authorization`."""


class EmailConfig(Model):
    """Mail by SMTP."""

    host: Annotated[Text, Field(min_length=1)]
    """The mail server."""
    port: Whole = Field(587, ge=1, le=65_535)
    """Its port."""
    tls: Literal["starttls", "tls", "none"] = "starttls"
    """`none` sends the mail, and a password, in the clear."""
    user: Text | None = None
    """The user; none: no login."""
    password: Secret | None = None
    """The user's password."""
    sender: Annotated[Text, Field(pattern=r"^[^@\s]+@[^@\s]+$")]
    """The address that sends."""
    to: Annotated[
        tuple[Annotated[Text, Field(pattern=r"^[^@\s]+@[^@\s]+$")], ...], Field(min_length=1), AfterValidator(different)
    ]
    """The addresses that get it."""

    @model_validator(mode="after")
    def _both_or_neither(self) -> EmailConfig:
        if (self.user is None) != (self.password is None):
            raise ValueError("has only one of user and password")
        return self


class AlertsConfig(Model):
    """Who is notified of problems; a way that is not named is not used."""

    slack: SlackConfig | None = None
    pagerduty: PagerDutyConfig | None = None
    webhook: WebhookConfig | None = None
    email: EmailConfig | None = None
    on: Annotated[tuple[Kind, ...], AfterValidator(different)] = (
        "run",
        "held",
        "lacking",
        "slot",
        "proof",
        "expectation",
        "freshness",
    )
    """What is reported: failed runs, held tables, what the lake lacks, the slot's check, proofs, expectations, assets
    that are too old."""
    least: Literal["warn", "error"] = "warn"
    """The least severity that is reported."""
    repeat_s: Seconds = Field(86_400.0, ge=0, le=2_592_000)
    """A problem that lasts is reported again after so many seconds; 0: once."""
    per_hour: Whole = Field(20, ge=1, le=1000)
    """Messages in an hour by each way, about; what is left over waits."""
    ui: _Url | None = None
    """Where people reach Dagster's UI: messages link to it."""

    @property
    def is_on(self) -> bool:
        """True if somebody is notified."""
        return any((self.slack, self.pagerduty, self.webhook, self.email))


# The keys of each way that hold a secret.
SECRETS = {
    "slack": ("url",),
    "pagerduty": ("routing_key",),
    "webhook": ("url", "authorization"),
    "email": ("password",),
}
