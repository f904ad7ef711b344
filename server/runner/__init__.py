"""The runner: claims campaigns and advances each, trial by trial."""
