"""A first adapter from what a trainer says of itself: its help text and a log."""
