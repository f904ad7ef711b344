"""Dimensions, quantities and failures in words."""
