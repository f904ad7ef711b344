"""What a campaign does next, what it keeps of a trial, and what is best. Pure: no SQL, no I/O."""
