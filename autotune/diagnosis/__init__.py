"""Why a run is slow: what its log says, what was to be expected, and the gap by cause."""
