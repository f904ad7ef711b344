"""Trials on a Ray cluster that is there already."""
