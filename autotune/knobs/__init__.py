"""Settings tried on a layout that was found: which starts come next, and what they show."""
