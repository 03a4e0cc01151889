"""The browser of these tests, one for each module; they are skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chromium import IS_INSTALLED, Browser, launched


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not IS_INSTALLED:
        pytest.skip("chromium and chromedriver are not installed")
    with launched(tmp_path_factory.mktemp("profile")) as running:
        yield running
