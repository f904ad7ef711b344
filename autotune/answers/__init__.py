"""Answers in words: what the shell, the pages and notebooks show of a campaign, a trial or a
recommendation."""
