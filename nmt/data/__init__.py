"""Text on its way to the model: corpus (pairs of lines) -> vocabulary (pieces) -> prepared (ids) -> batching (updates).

corpus reads through folders, tables and hub, with holdout and cleaning; preparation makes vocabulary and ids on all cores
(encoding, workers), counts the overlap with held-out text, and keeps all that in the cache.
"""
