"""Alerts: rules over what a run measures, where they are told, and what is done about them (docs/guides/alerts.md)."""
