"""Stages for images, at the paths that users know.

An image flows as a row: pixels exist only inside the stage that needs them.
"""
