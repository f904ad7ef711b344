"""The parsers of transformers and TRL, for an interpreter that has them:
`python hugging_face_parser.py OUT < LISTS`.

Each line on its input is a JSON list: `trl-sft` or another name, and then arguments. Each line of
OUT is what came of it, as JSON: fields of `TrainingArguments`, and DeepSpeed's configuration as
the Trainer fills it in; or `{"refused": …}`.
"""

import json
import sys
from typing import Any

from transformers import (  # type: ignore[import-not-found]
    HfArgumentParser,
    TrainingArguments,
    training_args,
)

# Only the arguments are looked at: a GPU that can do what they ask for is taken to be there.
training_args.is_torch_bf16_gpu_available = lambda: True

FIELDS = (
    "max_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "bf16",
    "fp16",
    "gradient_checkpointing",
    "logging_steps",
    "report_to",
    "max_length",
)


def parsed(name: str, words: list[str]) -> Any:
    """Return the arguments of the trainer."""
    if name != "trl-sft":
        return HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)[0]
    from trl import (  # type: ignore[import-not-found]
        ModelConfig,
        ScriptArguments,
        SFTConfig,
        TrlParser,
    )

    return TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config(words)[1]


with open(sys.argv[1], "w") as out:
    for line in sys.stdin:
        name, *words = json.loads(line)
        try:
            arguments = parsed(name, words)
        except (Exception, SystemExit) as error:
            answer: dict[str, Any] = {"refused": f"{type(error).__name__}: {error}"}
        else:
            answer = {field: getattr(arguments, field, None) for field in FIELDS}
            deepspeed = getattr(arguments, "hf_deepspeed_config", None)
            answer["deepspeed"] = deepspeed and deepspeed.config
        print(json.dumps(answer, default=str), file=out)
