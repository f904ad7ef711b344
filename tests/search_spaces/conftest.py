"""Properties are checked without a time limit for each example: a loaded machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.load_profile("patient")
