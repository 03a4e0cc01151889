"""Alerts: rules over what a run measures, where they are sent, and what is done about them (docs/guides/alerts.md)."""
