"""What `autotune doctor` looks at: this machine, Slurm, a cluster profile, a node."""
