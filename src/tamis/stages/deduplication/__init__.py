"""Stages and workflows that find and remove duplicate documents."""
