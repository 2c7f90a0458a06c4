"""`nmt score`: translations against references, by sacreBLEU's metrics."""
