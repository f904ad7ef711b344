"""Attempts at a trial: what all machines that trials run on share of them."""
