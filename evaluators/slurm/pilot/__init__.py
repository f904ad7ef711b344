"""Trials as steps of one allocation, side by side, each on nodes that we choose."""
