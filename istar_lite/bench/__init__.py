"""Benchmarks that users can run: `istar-lite bench …`."""
