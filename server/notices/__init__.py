"""Notices: an e-mail or a webhook when a campaign ends or pauses."""
