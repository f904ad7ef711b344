"""Any trainer by a file: how it is told a strategy, and how what it prints is read."""
