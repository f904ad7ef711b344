"""Megatron-DeepSpeed: a strategy as its arguments, a trial as its runs, a checkout looked over."""
