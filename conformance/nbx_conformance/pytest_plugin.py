"""The pytest plugin: options of a conformance run, one test a kernel and case, and the bundle at the end."""
