"""Load on a service: its campaigns, clients of it, and load that goes on for an hour."""
