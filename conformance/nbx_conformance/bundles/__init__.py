"""Bundles: what runs found, as files: written, merged, signed, verified, and shown."""
