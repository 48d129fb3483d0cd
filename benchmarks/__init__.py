"""How fast serpette is, against the targets that it has set itself: `python -m benchmarks [NAME ...]`."""
