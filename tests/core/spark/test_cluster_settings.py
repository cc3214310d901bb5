"""What follows from the master: the driver's address, the secret, a shuffle's parts; and what is refused before a start."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.config.secret import EnvSecret
from lakeproof.config.section.spark import SparkConfig, is_local
from lakeproof.errors import ConfigError
from lakeproof.lake.spark.session import (
    address_towards,
    build_session,
    placed_settings,
    scratch_given,
    secret_given,
    shuffle_partitions,
)

SECRET = "hunter2 \\ with = and :"
STANDALONE = "spark://127.0.0.1:7077"


def spark(master: str, secret: EnvSecret | None = None, conf: dict[str, str] | None = None) -> SparkConfig:
    """The section."""
    return SparkConfig(master=master, secret=secret, conf=conf or {})


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]"])
def test_one_machine_keeps_to_itself(master: str) -> None:
    """The driver listens to this machine alone, and asks for a secret that Spark makes."""
    assert is_local(master)
    settings = placed_settings(spark(master))
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.authenticate"] == "true"
    assert settings["spark.sql.shuffle.partitions"] == "4"


def test_executors_find_the_driver_by_its_address_on_the_way_to_the_master() -> None:
    """The first of several masters counts; a name that nobody knows and YARN are left to Spark."""
    assert address_towards("spark://127.0.0.1:7077,other:7077") == "127.0.0.1"
    assert address_towards("k8s://https://127.0.0.1:6443") == "127.0.0.1"
    assert address_towards("k8s://127.0.0.1") == "127.0.0.1"
    assert address_towards("yarn") is None
    assert address_towards("spark://no-such-host.invalid:7077") is None


def test_an_address_that_a_person_gives_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reads these variables itself."""
    assert placed_settings(spark(STANDALONE))["spark.driver.host"] == "127.0.0.1"
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    assert "spark.driver.host" not in placed_settings(spark(STANDALONE))


@pytest.mark.parametrize(
    ("conf", "parts"),
    [
        ({}, 32),
        ({"spark.cores.max": "40"}, 80),
        ({"spark.executor.instances": "3", "spark.executor.cores": "4"}, 24),
        ({"spark.dynamicAllocation.maxExecutors": "1000", "spark.executor.cores": "8"}, 1000),
        ({"spark.executor.instances": "1"}, 4),
    ],
)
def test_a_shuffle_has_parts_for_the_cores_that_are_asked_for(conf: dict[str, str], parts: int) -> None:
    """Twice as many, at least 4, at most 1,000; 32 if nothing says how many cores there are."""
    assert shuffle_partitions(spark("yarn", conf=conf)) == parts


def test_who_asks_for_a_secret() -> None:
    """A standalone cluster if there is one, Kubernetes always; YARN as its own configuration says."""
    secret = EnvSecret("LP_TEST_SECRET", "spark.secret")
    assert placed_settings(spark(STANDALONE, secret))["spark.authenticate"] == "true"
    assert placed_settings(spark("k8s://https://127.0.0.1"))["spark.network.crypto.enabled"] == "true"
    assert "spark.authenticate" not in placed_settings(spark("yarn"))
    assert "spark.authenticate" not in placed_settings(spark(STANDALONE))


def test_the_secret_is_read_from_a_file_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the arguments that everybody on the machine sees, and gone when the driver has started."""
    monkeypatch.setenv("LP_TEST_SECRET", SECRET)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name x pyspark-shell")
    config = spark(STANDALONE, EnvSecret("LP_TEST_SECRET", "spark.secret"))
    with secret_given(config):
        words = os.environ["PYSPARK_SUBMIT_ARGS"].split()
        assert words[0] == "--properties-file"
        assert words[2:] == ["--load-spark-defaults", "--name", "x", "pyspark-shell"]
        file = Path(words[1])
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert file.read_text() == "spark.authenticate.secret=hunter2 \\\\ with = and :\n"
    assert not file.exists()
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name x pyspark-shell"
    assert SECRET not in repr(config)
    assert config.secret_variables == {"LP_TEST_SECRET"}


def test_a_driver_of_a_cluster_keeps_its_scratch_files_to_itself() -> None:
    """The setting would name the folder for executors, too, so the variable does."""
    with scratch_given(spark(STANDALONE)):
        folder = Path(os.environ["SPARK_LOCAL_DIRS"])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "SPARK_LOCAL_DIRS" not in os.environ
    assert "spark.local.dir" not in placed_settings(spark(STANDALONE))


@pytest.mark.parametrize(
    ("name", "value"), [("SPARK_REMOTE", "sc://host"), ("SPARK_API_MODE", "connect"), ("SPARK_CONNECT_MODE", "1")]
)
def test_an_environment_that_asks_for_connect_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Before anything is started; the error says why, and what to do."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"the variable {name} would start Spark Connect, whose client has no JVM"):
        build_session(SparkConfig(), "refused")


@pytest.mark.parametrize("conf", [{"spark.remote": "sc://host"}, {"spark.api.mode": "connect"}])
def test_settings_that_ask_for_connect_are_refused(conf: dict[str, str]) -> None:
    """As the variables are."""
    with pytest.raises(ConfigError, match=f"{next(iter(conf))} in spark.conf would start Spark Connect"):
        build_session(SparkConfig(conf=conf), "refused")


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("master: sc://host:15002", "spark.master: is Spark Connect, whose client has no JVM"),
        ("master: mesos://host", "spark.master: is no master of Spark's; name local"),
        ("secret: hunter2", "spark.secret: must be {env: NAME} or {file: PATH}"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, line: str, mistake: str) -> None:
    """Each is named with its line; a secret in the file is not repeated."""
    file = tmp_path / "lakeproof.yaml"
    file.write_text(f"lake: lake\nsources: {{s: {{dsn: dbname=a}}}}\nspark:\n  {line}\n", encoding="utf-8")
    with pytest.raises(ConfigFileError) as refused:
        load(file)
    assert mistake in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_secret_in_a_file(tmp_path: Path) -> None:
    """Its place is relative to the configuration's."""
    file = tmp_path / "lakeproof.yaml"
    text = (
        f"lake: lake\nsources: {{s: {{dsn: dbname=a}}}}\nspark: {{master: '{STANDALONE}', secret: {{file: secret}}}}\n"
    )
    file.write_text(text, encoding="utf-8")
    (tmp_path / "secret").write_text("hunter2\n", encoding="utf-8")
    secret = load(file).spark.secret
    assert secret is not None
    assert secret.resolve() == "hunter2"
