"""One S3 server per test session, a bucket per test, and a proxy with faults for who asks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.optional import optional
from tests.support.s3_server import CREDENTIALS, FaultyProxy, S3Server

boto3 = pytest.importorskip("boto3", reason="the extra s3 is not installed")
optional("moto", reason="moto[s3] is not installed")


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    with S3Server() as made:
        yield made


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> str:
    """Return the name of a new bucket; the environment says how to reach it, as a user's would."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("TAMIS_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("TAMIS_STORES", raising=False)
    _forget(monkeypatch)
    name = f"b-{uuid.uuid4().hex[:12]}"
    direct(server).create_bucket(Bucket=name)
    return name


@pytest.fixture
def proxy(server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """Return the proxy between Tamis and the server; tests ask the server itself."""
    made = FaultyProxy(server.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    _forget(monkeypatch)
    yield made
    made.close()


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.stores import opening, s3

    monkeypatch.setattr(s3, "_clients", {})
    monkeypatch.setattr(opening, "_sources", {})


@pytest.fixture
def s3(server: S3Server, bucket: str) -> Any:
    return direct(server)


def direct(server: S3Server) -> Any:
    """boto3's own client, past proxy and Tamis."""
    return boto3.client(
        "s3", endpoint_url=server.url, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
    )
