"""Secrets: read when used, named when missing, never shown."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.config.model import SourceConfig
from lakeproof.config.secret import Dsn, EnvSecret, FileSecret
from lakeproof.errors import ConfigError

SECRET = "hunter2 with 'quotes' and \\"
BASE = "host=a dbname=b user=c"


def dsn(place: str = "sources.shop") -> Dsn:
    """A conninfo whose password is in the environment."""
    return Dsn(BASE, EnvSecret("LP_TEST_PASSWORD", f"{place}.password"), f"{place}.dsn")


@pytest.mark.parametrize("base", [BASE, "postgresql://c@a/b", "postgresql://c@a:5432/b?sslmode=require"])
def test_the_password_is_added_when_it_is_used(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    """The password is added to both forms of a conninfo, whatever characters it has."""
    monkeypatch.setenv("LP_TEST_PASSWORD", SECRET)
    value = Dsn(base, EnvSecret("LP_TEST_PASSWORD", "p")).get_secret_value()
    parts = conninfo_to_dict(value)
    assert (parts["host"], parts["dbname"], parts["user"], parts["password"]) == ("a", "b", "c", SECRET)


def test_a_changed_variable_is_seen_at_the_next_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotated password needs no new process."""
    value = dsn()
    for secret in ("one", "two"):
        monkeypatch.setenv("LP_TEST_PASSWORD", secret)
        assert conninfo_to_dict(value.get_secret_value())["password"] == secret


@pytest.mark.parametrize(("value", "phrase"), [(None, "is not set"), ("", "is empty")])
def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch, value: str | None, phrase: str) -> None:
    """The error names the setting that uses the variable; an empty password would fail much later."""
    if value is None:
        monkeypatch.delenv("LP_TEST_PASSWORD", raising=False)
    else:
        monkeypatch.setenv("LP_TEST_PASSWORD", value)
    with pytest.raises(ConfigError) as caught:
        dsn().get_secret_value()
    assert str(caught.value).startswith(f"sources.shop.password: the environment variable LP_TEST_PASSWORD {phrase}; ")


@pytest.mark.parametrize(
    ("value", "phrase"),
    [
        ("nonsense hunter2", "is not a libpq connection string or URI"),
        ("host=a password=hunter2", "names no database"),
        ("host=a dbname=b password=hunter2 replication=true", "sets replication"),
    ],
)
def test_a_wrong_conninfo_in_the_environment_is_named_not_shown(
    monkeypatch: pytest.MonkeyPatch, value: str, phrase: str
) -> None:
    """A conninfo from the environment is checked like the file's, when it is used."""
    monkeypatch.setenv("LP_TEST_DSN", value)
    with pytest.raises(ConfigError) as caught:
        Dsn(EnvSecret("LP_TEST_DSN", "sources.shop.dsn"), place="sources.shop.dsn").get_secret_value()
    assert phrase in str(caught.value)
    assert "LP_TEST_DSN" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_conninfo_from_the_environment_may_carry_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is the place for secrets."""
    monkeypatch.setenv("LP_TEST_DSN", f"{BASE} password=hunter2")
    value = Dsn(EnvSecret("LP_TEST_DSN", "p"))
    assert value.get_secret_value() == f"{BASE} password=hunter2"
    assert value.resolve().get_secret_value() == f"{BASE} password=hunter2"


@pytest.mark.parametrize("set_it", [True, False])
def test_nothing_that_prints_or_compares_reads_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, set_it: bool
) -> None:
    """Printing does not show a secret that is set, and does not fail if it is not set."""
    monkeypatch.delenv("LP_TEST_PASSWORD", raising=False)
    if set_it:
        monkeypatch.setenv("LP_TEST_PASSWORD", "hunter2")
    file = tmp_path / "w.yaml"
    file.write_text(f"lake: x\nsources: {{shop: {{dsn: '{BASE}', password: {{env: LP_TEST_PASSWORD}}}}}}\n")
    config = load(file)
    shown = [
        repr(config),
        str(config),
        repr(config.sources["shop"].dsn),
        f"{config.sources['shop'].dsn}",
        repr(config.model_dump()),
        config.model_dump_json(),
        str(len(dsn())),
        str(hash(dsn())),
    ]
    assert not any("hunter2" in text for text in shown)
    assert load(file) == config
    assert copy.deepcopy(config) == config


def test_a_dsn_survives_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled, it carries names only; the other side resolves them."""
    monkeypatch.setenv("LP_TEST_PASSWORD", "hunter2")
    data = pickle.dumps(dsn())
    assert b"hunter2" not in data
    again: Dsn = pickle.loads(data)  # noqa: S301  (made a line before)
    assert again == dsn()
    assert "hunter2" in again.get_secret_value()


@pytest.mark.parametrize("variable", ["", "A B", "A-B", "9A", "$A", "A=B"])
def test_a_name_that_is_no_variable_is_refused(variable: str) -> None:
    """The name is refused before it is looked up."""
    with pytest.raises(ValueError, match="must name an environment variable"):
        EnvSecret(variable, "p")


def test_dsns_differ_where_a_part_differs() -> None:
    """A name is as good as a value to tell them apart."""
    assert dsn() == dsn("sources.shop")
    assert dsn() != Dsn(BASE)
    assert Dsn(BASE) != Dsn(EnvSecret("A", "p"))
    assert Dsn(BASE) != BASE


def test_a_source_made_in_code_takes_any_secret() -> None:
    """Tests and notebooks have their conninfo already."""
    source = SourceConfig(name="a", dsn=SecretStr("host=x dbname=y password=z"), publication="p", slot="s")
    assert source.dsn.get_secret_value() == "host=x dbname=y password=z"
    assert "password=z" not in repr(source)


def test_a_secret_may_stand_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    """Containers get secrets as files; an editor's final newline is not part of it, and a rotated secret is noticed."""
    (tmp_path / "w.yaml").write_text(
        f"lake: lake\nsources: {{shop: {{dsn: {BASE}, password: {{file: secrets/shop}}}}}}\n", encoding="utf-8"
    )
    source = load(tmp_path / "w.yaml").sources["shop"]
    file = tmp_path / "secrets" / "shop"
    file.parent.mkdir()
    for text, value in ((f"{SECRET}\n", SECRET), ("two\r\n", "two"), (" three ", " three ")):
        file.write_bytes(text.encode())
        assert conninfo_to_dict(source.dsn.get_secret_value())["password"] == value


@pytest.mark.parametrize(
    ("data", "phrase"),
    [
        (None, "can't be read (No such file or directory)"),
        (b"", "has no text"),
        (b"\n", "has no text"),
        (b"\xff", "is not UTF-8"),
        (b"a\0b", "is no secret"),
        (b"hunter2" * 10_000, "is no secret"),
    ],
)
def test_a_file_without_a_secret_is_named_and_not_shown(tmp_path: Path, data: bytes | None, phrase: str) -> None:
    """The error names the setting that uses the file."""
    file = tmp_path / "secret"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        Dsn(BASE, FileSecret(file, "sources.shop.password")).get_secret_value()
    assert str(caught.value).startswith(f"sources.shop.password: the file {file} {phrase}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("alerts: {slack: {url: {env: a b}}}", "alerts.slack.url: env must name"),
        ("alerts: {slack: {url: {file: ~/a}}}", "alerts.slack.url: begins with ~"),
        ("alerts: {slack: {url: b}}", "alerts.slack.url: must be {env: NAME} or {file: PATH}"),
        ("alerts: {slack: {url: {env: A}, ulr: {env: A}}}", "alerts.slack.ulr: unknown key; did you mean url?"),
        ("spark: {secret: b}", "spark.secret: must be {env: NAME} or {file: PATH}"),
    ],
)
def test_a_wrong_reference_to_a_secret_is_named_once_with_its_line(tmp_path: Path, section: str, expected: str) -> None:
    """No place takes a secret's text, and a wrong reference is the file's mistake, whichever section it is in."""
    file = tmp_path / "lakeproof.yaml"
    file.write_text(f"lake: ./lake\nsources: {{shop: {{dsn: host=a dbname=b}}}}\n{section}\n")
    with pytest.raises(ConfigFileError) as caught:
        load(file)
    (line,) = caught.value.lines()
    assert line.startswith(f"{file}:3: {expected}")
