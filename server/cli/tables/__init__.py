"""What the commands print as text for people."""
