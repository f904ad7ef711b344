"""The runner as a process: `python -m server.runner`, its settings in the environment."""

from __future__ import annotations

import argparse
import sys

from evaluators.processes import die_with

EXIT_IN_USE = 75
EXIT_INVALID = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m server.runner", description=__doc__)
    parser.add_argument("--parent", type=int, help="end when the process with this id ends")
    parent = parser.parse_args().parent
    if parent is not None:
        die_with(parent)
    from search_spaces.errors import InvalidInput
    from server.logs import configure
    from server.runner.runner import run_until_stopped
    from server.runner.supervisor import EXIT_REPLACED
    from server.settings import Settings
    from server.store import DatabaseReplaced, InUse, UnknownSchema

    settings = Settings()
    configure(settings, "runner", terminal=parent is None)
    try:
        run_until_stopped(settings)
    except InUse as error:
        print(error, file=sys.stderr)
        return EXIT_IN_USE
    except DatabaseReplaced as error:
        print(error, file=sys.stderr)
        return EXIT_REPLACED
    except (InvalidInput, UnknownSchema) as error:
        print(error, file=sys.stderr)
        return EXIT_INVALID
    return 0


if __name__ == "__main__":
    sys.exit(main())
