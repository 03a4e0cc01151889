"""Figures of a run for Prometheus, with alert rules for it and a dashboard for Grafana."""
