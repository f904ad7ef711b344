"""Recommendations from a campaign's trials. Pure."""
