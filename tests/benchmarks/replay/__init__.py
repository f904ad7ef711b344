"""Searches on published grids, where a trial reveals a row: `tests/benchmarks/search_replay.py`."""
