"""Workflows in these modules share a warm process."""

from tests.support.shared_warm_process import shared_process, shared_warm_process

__all__ = ["shared_process", "shared_warm_process"]
