"""The examples in each command's --help. Tests run them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("autotune demo", "autotune demo --once --json > result.json"),
    "serve": ("autotune serve", "autotune serve --port 9000 --data-dir ./run"),
    "users add": (
        "autotune users add alice --scope admin --out alice.token",
        "autotune users add bob --most-campaigns 5 --node-hours-a-month 200 --out bob.token",
    ),
    "users change": ("autotune users change bob --node-hours-a-month none",),
    "login": ("autotune login --url https://tuning.example.org < my.token",),
    "audit": ("autotune audit --user bob --since 7d",),
    "runner": ("AUTOTUNE_DATABASE_URL=postgresql://user@host/name autotune runner",),
    "submit": (
        "autotune submit --model tiny --space tiny-local --max-trials 12 --watch",
        "autotune submit --model gpt-175b --machine frontier --nodes 16 --space table-v",
        "autotune submit --model 13B --machine dgx-a100 --nodes 4 --tp 1,2,4 --mbs 1:8 "
        "--global-batch 512:1024 --max-node-hours 20 --dry-run",
        "autotune submit --model gpt-175b --machine frontier --nodes 16 --global-batch 512 "
        "--baseline tp=8,pp=4,mbs=1,zero=1",
        "autotune submit --model 22B --profile frontier --nodes 4 --global-batch 512 --watch",
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
    "top": ("autotune top", "autotune top --once --json"),
    "ls": ("autotune ls --state running", "autotune ls --search 175b --sort=-best_mfu"),
    "show": (
        "autotune show 3 --state oom",
        "autotune show 3 --sort=-tokens_per_s --limit 10",
        "autotune show 3 --trial 7 --log 50",
    ),
    "open": ("autotune open 3",),
    "best": (
        "autotune best 3",
        "autotune best 3 --out run/",
        "autotune best 3 --script > launch.sbatch",
    ),
    "repeat": ("autotune repeat 3 --search deephyper --watch",),
    "compare": (
        "autotune compare 2 4",
        "autotune compare 2 4 --out compared.svg --by trial",
        "autotune compare 2 4 --json",
    ),
    "plot": (
        "autotune plot 3",
        "autotune plot 3 --kind parts",
        "autotune plot 3 --kind importance --out importance.pdf",
        "autotune plot 3 --kind map --mbs 4 --num-nodes 16 --out map.png --scheme dark",
        "autotune plot 3 --kind pareto_front --against num_nodes --json",
    ),
    "extend": ("autotune extend 3 --max-trials 60",),
    "backup": (
        "autotune backup autotune-2027-01-31.db",
        "autotune backup shared.db --database-url postgresql://user@host/name",
    ),
    "restore": (
        "autotune restore autotune-2027-01-31.db --data-dir ./run",
        "autotune restore autotune-2027-01-31.db --database-url postgresql://user@host/name",
    ),
    "prune": ("autotune prune --older-than 90d --dry-run", "autotune prune --older-than 26w"),
    "predict": (
        "autotune predict --model gpt-175b --machine frontier --tp 4 --pp 16 --gas 640 "
        "--num-nodes 16 --precision fp16",
        "autotune predict --model 13B --machine dgx-h100 --tp 2 --mbs 2 --gas 8",
    ),
    "sweep": (
        "autotune sweep --model gpt-175b --machine frontier --nodes 16 --space table-v",
        "autotune sweep --model 13B --machine dgx-a100 --nodes 4 --tp 1,2,4,8 "
        "--global-batch 512 --top 5",
    ),
    "scaling": (
        "autotune scaling --model gpt-175b --machine frontier --tp 4 --pp 16 --gas 320 "
        "--num-nodes 16 --nodes 16,32,64,128",
        "autotune scaling --campaign 3",
        "autotune scaling --like 3 --nodes 16,32,64 --run --kind strong --watch",
    ),
    "calibrations": (
        "autotune calibrations fit frontier-rocm6 --campaign 3",
        "autotune calibrations show frontier-rocm6",
        "autotune predict --calibration frontier-rocm6 --model 175B --machine frontier --tp 8 "
        "--pp 8 --gas 32 --num-nodes 16",
    ),
    "calibrations fit": (
        "autotune calibrations fit frontier-rocm6 --campaign 3",
        "autotune calibrations fit frontier-rocm6 --campaign 3 --campaign 4 "
        "--software 'ROCm 6.2, PyTorch 2.5'",
    ),
    "calibrations show": ("autotune calibrations show frontier-rocm6",),
    "calibrations export": (
        "autotune calibrations export frontier-rocm6 --output frontier.json",
        "autotune predict --calibration ./frontier.json --model 13B --machine frontier --tp 2",
    ),
    "calibrations import": ("autotune calibrations import frontier-rocm6 frontier.json",),
    "space": (
        "autotune space --model gpt-175b --machine frontier --nodes 16 --space table-v",
        "autotune space --model 13B --machine dgx-a100 --nodes 4 --tp 1,2,4,8 --mbs 1:8 "
        "--global-batch 512:1024",
        "autotune space --layers 24 --hidden 2048 --heads 16 --machine perlmutter --nodes 2",
    ),
}
