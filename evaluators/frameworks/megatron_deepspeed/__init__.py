"""Megatron-DeepSpeed: a strategy as arguments, a trial as runs, checks of a checkout."""
