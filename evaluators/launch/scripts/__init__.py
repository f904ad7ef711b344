"""Files that a user runs: sbatch scripts, and the script for this machine."""
