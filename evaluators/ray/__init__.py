"""Trials on an existing Ray cluster."""
