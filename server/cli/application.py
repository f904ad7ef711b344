"""The application with all commands, each imported when it runs, so that --help is fast."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from server.cli.failures import EXIT_CODES, Command, Commands
from server.cli.output import text

PACKAGE = "server.cli.commands"


class LateCommand(TyperCommand):
    """A command or a group of commands, which is imported when it is called or listed."""

    def __init__(self, words: str, *, module: str, panel: str | None = None) -> None:
        """Name the command.

        Args:
            words: its whole name, of two words in a group.
            module: within server.cli.commands. Its function has the command's name, with an
                underscore behind it if Python has this name; a group has its help in HELP.
        """
        super().__init__(name=words.split()[-1], rich_help_panel=panel)
        self._words = words
        self._module = module

    @cached_property
    def _content(self) -> Any:
        module, name = import_module(f"{PACKAGE}.{self._module}"), self.name
        if self._words in GROUPS:
            return module.HELP
        return getattr(module, f"{name}_", None) or getattr(module, f"{name}")

    @property
    def summary(self) -> str:
        content = self._content
        text = content if isinstance(content, str) else content.__doc__
        return " ".join(text.split("\n\n")[0].split())

    @cached_property
    def loaded(self) -> Any:
        """The command with its options, or the group with its commands."""
        lines = EXAMPLES.get(self._words, ())
        epilog = "\n\n".join(["Examples:", *(f"  {line}" for line in lines)]) if lines else None
        if self._words in GROUPS:
            return LateCommands(
                name=self.name,
                help=self._content,
                epilog=epilog,
                no_args_is_help=True,
                rich_markup_mode="rich",
                commands={
                    name: LateCommand(f"{self._words} {name}", module=self._module)
                    for name in GROUPS[self._words]
                },
            )
        from server.cli.option_groups import flattened

        single = typer.Typer(
            add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
        )
        single.command(self.name, cls=Command, epilog=epilog)(flattened(self._content))
        return get_command(single)

    def make_context(self, *arguments: Any, **others: Any) -> Any:
        return self.loaded.make_context(*arguments, **others)


class LateCommands(Commands):
    """A group of late commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names; help and completion, which list them, show the summaries as well."""
        for command in self.commands.values():
            if isinstance(command, LateCommand):
                command.help = command.summary
        return list(super().list_commands(ctx))


HELP = f"""Find the parallel layout with which a language model trains fastest, by short real runs.

Start with `autotune demo`. Or run `autotune serve` in one terminal, and in another:

  autotune submit --model tiny --machine local --space tiny-local --max-trials 10 --watch\n
  autotune best 1 --out run/

On a cluster with Slurm, `autotune doctor --profile NAME` says what is missing, and
`autotune submit --profile NAME ...` runs trials as jobs.

Without a service, `autotune predict` and `autotune sweep` answer from the cost model, and
`autotune diagnose LOG` says why a run is slow.

{EXIT_CODES}
"""

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Start": {"demo": "serve", "serve": "serve", "runner": "serve"},
    "Campaigns": {
        "submit": "submit",
        "watch": "watching",
        "ls": "campaigns",
        "show": "campaigns",
        "best": "watching",
        "compare": "campaigns",
        "plot": "campaigns",
        "pause": "campaigns",
        "resume": "campaigns",
        "cancel": "campaigns",
        "extend": "campaigns",
        "rm": "campaigns",
        "import": "imports",
    },
    "Without a service": {
        "predict": "predictions",
        "sweep": "predictions",
        "diagnose": "diagnose",
        "models": "catalog",
        "machines": "catalog",
        "profiles": "catalog",
        "adapter": "adapters",
        "doctor": "doctor",
    },
    "A service that a group shares": {
        "login": "users",
        "logout": "users",
        "users": "users",
    },
}
"""Panel of --help -> command -> its module."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "adapter": ("list", "show", "new", "check"),
    "users": ("list", "add", "revoke"),
}
"""Group -> its commands."""


EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("autotune demo", "autotune demo --once --json > result.json"),
    "serve": ("autotune serve", "autotune serve --port 9000 --data-dir ./run"),
    "users add": (
        "autotune users add alice --scope admin --out alice.token",
        "autotune users add bob --out bob.token",
    ),
    "login": ("autotune login --url https://tuning.example.org < my.token",),
    "runner": ("AUTOTUNE_DATABASE_URL=postgresql://user@host/name autotune runner",),
    "submit": (
        "autotune submit --model tiny --space tiny-local --max-trials 12 --watch",
        "autotune submit --model gpt-175b --machine frontier --nodes 16 --space table-v",
        "autotune submit --model 13B --machine dgx-a100 --nodes 4 --tp 1,2,4 --mbs 1:8 "
        "--global-batch 512:1024 --max-node-hours 20 --dry-run",
        "autotune submit --model gpt-175b --machine frontier --nodes 16 --global-batch 512 "
        "--baseline tp=8,pp=4,mbs=1,zero=1",
        "autotune submit --model 22B --profile frontier --nodes 4 --global-batch 512 --watch",
        "autotune submit --model 22B --profile frontier --nodes 4 --train-tokens 300B --knobs all",
        "autotune submit --like 3 --search deephyper --watch",
    ),
    "watch": ("autotune watch 3",),
    "models": ("autotune models", "autotune models 22B --tokens 300B"),
    "profiles": (
        "autotune profiles",
        "autotune profiles generic > ~/.config/autotune/profiles/mysite.toml",
    ),
    "adapter list": ("autotune adapter list",),
    "adapter show": (
        "autotune adapter show template > ~/.config/autotune/adapters/my-script.toml",
    ),
    "adapter new": ("autotune adapter new my-script --like template-hydra --folder .",),
    "doctor": ("autotune doctor", "autotune doctor --profile frontier --nodes 4 --live"),
    "ls": ("autotune ls --state running", "autotune ls --search 175b --sort=-best_mfu"),
    "show": (
        "autotune show 3 --state oom",
        "autotune show 3 --sort=-tokens_per_s --limit 10",
        "autotune show 3 --trial 7 --log 50",
    ),
    "best": (
        "autotune best 3",
        "autotune best 3 --out run/",
        "autotune best 3 --script > train.sbatch",
    ),
    "compare": (
        "autotune compare 2 4",
        "autotune compare 2 4 --json",
    ),
    "plot": (
        "autotune plot 3",
        "autotune plot 3 --kind parts",
        "autotune plot 3 --kind importance --out importance.pdf",
        "autotune plot 3 --kind map --mbs 4 --num-nodes 16 --out map.png --scheme dark",
        "autotune plot 3 --kind pareto_front --against num_nodes --json",
    ),
    "extend": (
        "autotune extend 3 --max-trials 60",
        "autotune extend 3 --knobs overlap,reduce_bucket",
    ),
    "import": (
        "autotune import run.log --machine dgx-h100",
        "autotune import runs.csv --machine dgx-a100 --adapter megatron-lm --name 2025",
    ),
    "rm": ("autotune rm 3", "autotune rm --older-than 26w --yes"),
    "predict": (
        "autotune predict --model gpt-175b --machine frontier --tp 4 --pp 16 --gas 640 "
        "--num-nodes 16 --precision fp16",
        "autotune predict --model 13B --machine dgx-h100 --tp 2 --mbs 2 --gas 8",
        "autotune predict --model gpt-175b --machine frontier --tp 4 --pp 16 --global-batch 640 "
        "--nodes 16 --over-nodes 16,32,64,128",
    ),
    "diagnose": (
        "autotune diagnose run.log",
        "autotune diagnose result_0.txt config.sh --machine dgx-h100",
        "autotune diagnose run.log --model llama-3-8b --machine dgx-h100 --nodes 4 --follow",
        "ssh cluster cat run.log | autotune diagnose - --machine dgx-h100",
    ),
    "sweep": (
        "autotune sweep --model gpt-175b --machine frontier --nodes 16 --space table-v",
        "autotune sweep --model 13B --machine dgx-a100 --nodes 4 --tp 1,2,4,8 "
        "--global-batch 512 --top 5",
        "autotune sweep --model 13B --machine dgx-a100 --nodes 4 --tp 1,2,4,8 --mbs 1:8 "
        "--global-batch 512:1024 --rules",
        "autotune sweep --model layers=24,hidden=2048,heads=16 --machine perlmutter --nodes 2",
    ),
}
"""Command -> the examples of its --help, which tests run."""


class AllCommands(LateCommands):
    """The command `autotune` with all of its subcommands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: LateCommand(name, module=module, panel=panel)
            for panel, modules in COMMANDS.items()
            for name, module in modules.items()
        }


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        text(f"autotune {version('autotune')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """The callback before every command."""


app = typer.Typer(
    cls=AllCommands,
    help=HELP,
    callback=_root,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    app(prog_name="autotune")
