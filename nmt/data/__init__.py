"""Text on its way to the model: corpus (pairs of lines) -> vocabulary (pieces) -> prepared (ids) -> batching (updates)."""
