"""Jars that Spark needs beside its own: their checksums, how they come onto this machine, and Spark's way to S3.

Other settings of a session are in `session.py`. No secret is here: the JVM itself finds credentials.

Delta names 33 jars; 30 of them are older copies of what PySpark brings, or are not needed on a folder. These three are
enough. They are fetched once, by Spark's own Ivy from the repositories it is configured for, and from then on given to Spark
as files: a start asks no network, and another content than the one named here is refused. For S3, Hadoop's S3A names
Amazon's SDK as one bundle of 686 MB; the modules here are 12 MB, and enough. What they need further is in PySpark, in newer
versions.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakeproof.config.location import ObjectPlace, StorageConfig
from lakeproof.errors import LakeError
from lakeproof.lake.spark.java import check_java

# A folder with the jars; if it does not exist, they are fetched into it.
VARIABLE = "LAKEPROOF_JARS"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are needed together: Maven coordinate → SHA-256; `left_out`: what else they depend on, as Ivy's patterns."""

    name: str
    checksums: Mapping[str, str]
    left_out: Sequence[str]


DELTA = JarSet(
    "Delta's jars",
    {
        "io.delta:delta-spark_4.2_2.13:4.4.0": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
        "io.delta:delta-storage:4.4.0": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
        "io.delta:delta-kernel-api:4.4.0": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    },
    left_out=(
        "com.*:*",
        "commons-*:*",
        "io.airlift:*",
        "io.delta:delta-kernel-defaults",
        "io.delta:delta-kernel-unitycatalog",
        "io.unitycatalog:*",
        "javax.*:*",
        "org.*:*",
    ),
)
_FETCH = """
import sys
from pyspark.sql import SparkSession
packages, left_out, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").appName("lakeproof jars")
for key, value in {
    "spark.jars.packages": packages, "spark.jars.excludes": left_out, "spark.jars.ivy": folder,
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}.items():
    builder = builder.config(key, value)
builder.getOrCreate().stop()
"""
_FETCH_S_MAX = 600
REMEDY = "run `lakeproof fetch-jars FOLDER` on a machine with a network, and name the folder in LAKEPROOF_JARS"


def jar_folder() -> Path:
    """Return the folder of the jars, which may not exist yet: LAKEPROOF_JARS, else a folder of this user's cache."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "lakeproof" / "jars"


def jars(place: Path | None = None, sets: Sequence[JarSet] = (DELTA,)) -> list[Path]:
    """Return the jars' files, fetched if they are not there; raises LakeError if they can't be had or are others.

    They are in `place`, by default in `folder()`.
    """
    place = jar_folder() if place is None else place
    # Before anything is fetched: beside a file that is not ours nothing is put.
    for jar_set in sets:
        check_jars(place, jar_set)
    for jar_set in sets:
        if missing_jars(place, [jar_set]):
            fetch(place, jar_set)
    return [jar_file(place, coordinate) for jar_set in sets for coordinate in jar_set.checksums]


def missing_jars(place: Path, sets: Iterable[JarSet]) -> list[str]:
    """Return the coordinates of the jars that are not in `place`."""
    return [name for jar_set in sets for name in jar_set.checksums if not jar_file(place, name).exists()]


def check_jars(place: Path, jar_set: JarSet) -> None:
    """Compare the checksums of the jars that are in `place`; raises LakeError for one of another content."""
    for coordinate, sha256 in jar_set.checksums.items():
        file = jar_file(place, coordinate)
        if file.exists() and sha256_of(file) != sha256:
            raise LakeError(str(file), "its content differs from what this version needs", f"remove it, then {REMEDY}")


def fetch(place: Path, jar_set: JarSet) -> None:
    """Fetch the jars into `place`; raises LakeError if a jar can't be had or differs, DefiniteError for no Java."""
    check_java()
    try:
        place.mkdir(parents=True, exist_ok=True)
        _fetch(place, jar_set)
    except OSError as error:
        raise LakeError(str(place), f"nothing can be written there: {error.strerror or error}", REMEDY) from None


def _fetch(place: Path, jar_set: JarSet) -> None:
    checksums = jar_set.checksums
    with tempfile.TemporaryDirectory(prefix="lakeproof-jars-") as ivy:
        command = [sys.executable, "-c", _FETCH, ",".join(checksums), ",".join(jar_set.left_out), ivy]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise LakeError(jar_set.name, f"they could not be fetched within {_FETCH_S_MAX} s", REMEDY) from None
        fetched = {coordinate: Path(ivy) / "jars" / _ivy_name(coordinate) for coordinate in checksums}
        for coordinate, file in fetched.items():
            if not file.exists():
                lines = [line for line in done.stderr.splitlines() if "Exception" in line or "not found" in line]
                reason = lines[-1].strip()[:300] if lines else "Ivy did not say why"
                raise LakeError(coordinate, f"it could not be fetched ({reason})", REMEDY)
            if sha256_of(file) != checksums[coordinate]:
                raise LakeError(
                    coordinate, "what was fetched has another checksum", "look at the repository that Ivy uses"
                )
        for coordinate, file in fetched.items():
            put_jar(file, jar_file(place, coordinate))


def put_jar(file: Path, target: Path) -> None:
    """Copy a jar whole or not at all: other processes may start just now."""
    copied = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copyfile(file, copied)
    copied.replace(target)


def jar_file(place: Path, coordinate: str) -> Path:
    """Return the place of a jar in the folder of jars."""
    _, artifact, version = coordinate.split(":")
    return place / f"{artifact}-{version}.jar"


def _ivy_name(coordinate: str) -> str:
    group, artifact, version = coordinate.split(":")
    return f"{group}_{artifact}-{version}.jar"


def sha256_of(file: Path) -> str:
    """Return the checksum of a file of some megabytes."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


_SCHEMES = ("s3a", "s3")
_FILES, _OLD_FILES = "org.apache.hadoop.fs.s3a.S3AFileSystem", "org.apache.hadoop.fs.s3a.S3A"
# The environment, a web identity, the profile that AWS_PROFILE names, a container's role, a machine's role.
_ANY_CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_OF_A_PROFILE = "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"


def is_on_s3(url: str) -> bool:
    """True if a lake of this URL is on S3."""
    place = ObjectPlace.parse(url)
    return place is not None and place.scheme == "s3"


def s3_settings(access: StorageConfig) -> dict[str, str]:
    """Return the settings for one store, under both schemes by which a file of it may be named."""
    settings = {
        # A file is put without a look whether its name, or a folder of that name, is there: data files have names that
        # nobody else gives, and Spark writes nothing else of a lake.
        "fs.s3a.performance.flags": "create,mkdir",
        "fs.s3a.aws.credentials.provider": _ANY_CREDENTIALS if access.profile is None else _OF_A_PROFILE,
        "fs.s3a.path.style.access": str(access.endpoint is not None and not access.virtual_hosted).lower(),
    }
    if access.profile is not None:
        settings["fs.s3a.auth.profile.name"] = access.profile
    if access.endpoint is not None:
        settings["fs.s3a.endpoint"] = access.endpoint
    if access.region is not None or access.endpoint is not None:
        # A server of one's own has some region, and the SDK needs one to sign requests.
        settings["fs.s3a.endpoint.region"] = access.region or "us-east-1"
    for scheme in _SCHEMES:
        settings[f"fs.{scheme}.impl"] = _FILES
        settings[f"fs.AbstractFileSystem.{scheme}.impl"] = _OLD_FILES
    return {f"spark.hadoop.{name}": value for name, value in settings.items()}


# The version that Hadoop 3.5.0 names.
_SDK = "2.35.4"
_MODULES = {
    "annotations": "6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8",
    "apache-client": "6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740",
    "arns": "c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380",
    "auth": "6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994",
    "aws-core": "fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623",
    "aws-query-protocol": "9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f",
    "aws-xml-protocol": "4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d",
    "checksums": "94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948",
    "checksums-spi": "88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec",
    "crt-core": "2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62",
    "endpoints-spi": "ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00",
    "http-auth": "3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491",
    "http-auth-aws": "c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01",
    "http-auth-aws-eventstream": "709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd",
    "http-auth-spi": "4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c",
    "http-client-spi": "728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb",
    "identity-spi": "188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf",
    "json-utils": "80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc",
    "metrics-spi": "c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487",
    "netty-nio-client": "b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc",
    "profiles": "0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8",
    "protocol-core": "f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5",
    "regions": "77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca",
    "retries": "f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469",
    "retries-spi": "668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd",
    "s3": "f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc",
    "s3-transfer-manager": "0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476",
    "sdk-core": "fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4",
    "sts": "8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2",
    "third-party-jackson-core": "32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea",
    "url-connection-client": "6805e4bd2134e9897e392edcc39558f418a9641ee85c15e0950867984b34d67f",
    "utils": "642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8",
    "utils-lite": "e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be",
}

_ACCELERATOR = "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1"

S3 = JarSet(
    "the jars for S3",
    {
        "org.apache.hadoop:hadoop-aws:3.5.0": "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
        "org.reactivestreams:reactive-streams:1.0.4": "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
        "software.amazon.eventstream:eventstream:1.0.1": "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822",
        _ACCELERATOR: "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
        **{f"software.amazon.awssdk:{name}:{_SDK}": sha256 for name, sha256 in _MODULES.items()},
    },
    left_out=(
        "com.*:*",
        "commons-*:*",
        "io.netty:*",
        "org.apache.hadoop:hadoop-client*",
        "org.apache.hadoop:hadoop-common",
        "org.apache.httpcomponents:*",
        "org.slf4j:*",
        "org.wildfly.*:*",
        "software.amazon.awssdk:bundle",
    ),
)
