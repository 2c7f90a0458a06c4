"""Translation: beam search over ids, and the translator that wraps it in text."""
