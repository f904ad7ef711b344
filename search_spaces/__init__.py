"""Search spaces: models, machines, strategies, and the rules of legality.

Pure: nothing here reads or writes anything but its own catalog of TOML files, a file that a caller
names, and, for the machine `local`, the facts of the machine that it runs on.
"""
