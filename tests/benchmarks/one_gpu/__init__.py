"""Trials of the bundled trainer on one GPU, and how well the cost model foresees them.

`python -m tests.benchmarks.one_gpu` runs them; `docs/gpu.md` says what it is for.
"""
