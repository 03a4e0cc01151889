"""Files of token ids, as trainers read them."""
