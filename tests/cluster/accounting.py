"""Slurm's accounting: slurmdbd over a MariaDB of its own, in the cluster's folder."""

from __future__ import annotations

import getpass
from pathlib import Path

from tests.cluster.configuration import host_address, host_name

DATABASE_SETTINGS = (
    "--skip-networking",
    "--skip-grant-tables",
    "--skip-log-bin",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
    "--innodb-lock-wait-timeout=900",  # which slurmdbd asks for
    "--innodb-doublewrite=0",
    "--innodb-flush-log-at-trx-commit=0",
    "--key-buffer-size=1M",
    "--aria-log-file-size=8M",
)
SYSTEM_TABLES = "mysql_system_tables.sql"


def write(folder: Path, port: int) -> dict[str, str]:
    """slurmdbd.conf, which only its user may read; what slurm.conf says about it."""
    lines = {
        "DbdHost": host_name(),
        "DbdAddr": host_address(),
        "DbdPort": str(port),
        "SlurmUser": getpass.getuser(),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge.socket",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": getpass.getuser(),
        "StorageLoc": "slurm_accounting",
        "PidFile": f"{folder}/slurmdbd.pid",
        "LogFile": f"{folder}/log/slurmdbd.log",
        "DebugLevel": "info",
    }
    path = folder / "slurmdbd.conf"
    path.touch(mode=0o600)
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": host_address(),
        "AccountingStoragePort": str(port),
        "AccountingStoragePass": f"{folder}/munge.socket",
        "AccountingStorageTRES": "gres/gpu",
    }


def database(folder: Path) -> list[str]:
    """The command of a MariaDB on `<folder>/database.socket`, its data made as it starts.

    `mariadb-install-db` takes seconds to make system tables of which Slurm needs one.
    """
    (folder / "database").mkdir()
    (folder / "database.sql").write_text(
        f"CREATE DATABASE mysql;\nUSE mysql;\n{procedure_table()}\n"
    )
    return [
        "mariadbd",
        "--no-defaults",
        f"--user={getpass.getuser()}",
        f"--datadir={folder}/database",
        f"--socket={folder}/database.socket",
        f"--pid-file={folder}/database.pid",
        f"--init-file={folder}/database.sql",
        *DATABASE_SETTINGS,
    ]


def procedure_table() -> str:
    """The statement that makes it, from MariaDB's own script."""
    for place in ("mysql", "mariadb"):
        script = Path("/usr/share", place, SYSTEM_TABLES)
        if script.exists():
            lines = script.read_text().splitlines()
            return next(
                line for line in lines if line.startswith("CREATE TABLE IF NOT EXISTS proc ")
            )
    raise FileNotFoundError(f"MariaDB has no {SYSTEM_TABLES} under /usr/share")
