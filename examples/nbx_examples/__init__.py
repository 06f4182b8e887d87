"""Complete small programs on nbx-registry."""
