"""What ``nbx conformance run`` gives pytest to collect. What is tried, and where, its options say."""

from nbx_conformance import suite

test_conformance = suite(device="cpu")
