"""Forecasts of runs: models of earlier runs, profiles of machines, ranges."""
