"""Predictions for a strategy, a space, or a campaign before it runs. Pure."""
