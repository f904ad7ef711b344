"""Trials as steps of one allocation, several side by side, each on nodes that we choose."""
