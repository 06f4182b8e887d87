"""The conformance suite that every kernel plugin must pass, its cases and its bundles."""
