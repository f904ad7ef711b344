"""The rules of a campaign: what to start next, what to store of a trial, and which layout is best.
Pure: no SQL, no I/O."""
