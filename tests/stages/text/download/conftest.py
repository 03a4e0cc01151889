"""A server on loopback for each test that asks for one, of the web or of S3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.loopback import Loopback, serve


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serve() as state:
        yield state


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    pytest.importorskip("moto", reason="moto[s3] is not installed")
    from tests.support.s3_server import S3Server

    with S3Server() as server:
        yield server.url


@pytest.fixture
def s3(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """boto3's own client, for what a test puts there.

    The environment says how to reach the server, as a user's would.
    """
    import boto3

    from tamis.stores import opening
    from tamis.stores import s3 as store
    from tests.support.s3_server import CREDENTIALS

    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TAMIS_STORES", raising=False)
    monkeypatch.setattr(store, "_clients", {})
    monkeypatch.setattr(opening, "_sources", {})
    return boto3.client("s3")
