"""Small animated previews of clips."""
