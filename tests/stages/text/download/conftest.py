"""A server on loopback for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback import Loopback, serve


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serve() as state:
        yield state
