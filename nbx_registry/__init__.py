"""A multi-backend kernel registry: which kernel runs, at what cost, and if none, why not."""
