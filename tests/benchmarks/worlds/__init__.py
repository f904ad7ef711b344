"""Searches on simulated machines that differ from what is believed of them."""
