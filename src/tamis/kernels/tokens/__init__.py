"""Token ids of texts, from words whose ids are known."""
