"""What commands print of results. Commands import a module of it when they run: --help shows no
table."""
