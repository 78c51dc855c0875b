"""What holds for all tests."""

from hypothesis import settings

# A busy machine is no defect: time is measured in benchmarks, not by how long one example took.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
