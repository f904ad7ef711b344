"""Trials of the bundled trainer on one GPU, and how well the cost model predicts them."""
