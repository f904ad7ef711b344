"""Faults at random over campaigns of all backends, and whether anything was lost or doubled."""
