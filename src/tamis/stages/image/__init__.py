"""Stages for pictures, at the paths that users know. A picture flows as a row: pixels exist only inside the stage that needs them."""
