from nbx_conformance import suite

test_conformance = suite("nbx-acme")
