"""Spark's settings for a lake on S3: the way to the store, and whose credentials these are.

Jars do not belong here (`s3_jars.py`), nor does any secret: credentials are found by the JVM itself.
"""

from __future__ import annotations

from lakeproof.config.location import ObjectPlace, StorageConfig

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
