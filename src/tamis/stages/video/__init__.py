"""Stages over videos: split into clips, measure and filter these, caption them, write them. Needs the extra `video`."""
