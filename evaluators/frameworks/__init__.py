"""One strategy in the words of each framework, without anything that runs or downloads it."""
