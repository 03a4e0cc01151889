"""Recipes under the path that users of NeMo Curator know; the code is in tamis/recipe."""
