"""The bundled trainer: a GPT in 3D parallel on DeepSpeed, for GPUs and for CPUs over gloo."""
