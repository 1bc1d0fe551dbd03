"""istar-lite."""
