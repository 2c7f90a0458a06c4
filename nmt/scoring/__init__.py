"""`nmt score`: translations against references, in the field's own numbers."""
