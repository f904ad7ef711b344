"""The bundled trial program: a GPT in 3D parallel on DeepSpeed, for GPUs and for CPUs over gloo.

Importing this package imports neither torch nor DeepSpeed: only the ranks of a trial do.
"""

from evaluators.trainer.support import unsupported, unsupported_within

__all__ = ["unsupported", "unsupported_within"]
