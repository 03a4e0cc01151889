"""Removing documents by a table of ids."""
