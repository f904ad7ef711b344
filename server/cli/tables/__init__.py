"""Tables that commands print. Commands import these modules when they run, so that --help does not
load them."""
