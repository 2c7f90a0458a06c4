"""Text on its way to the model: corpus (pairs of lines) -> vocabulary (pieces) -> preparation (ids) -> batching (updates).

corpus reads folders, tables and data sets of the hub, holds text out, and notes which pairs cleaning drops; preparation learns
the vocabulary, encodes the pairs, counts how much held-out text they contain, and caches all of it.
"""
