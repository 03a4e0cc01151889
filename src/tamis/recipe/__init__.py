"""Recipes: YAML files that describe a run. load.py checks and builds them, presets/ holds the ones that ship."""
