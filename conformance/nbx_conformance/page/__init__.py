"""The report as one HTML page that needs nothing beside itself."""

from nbx_conformance.page.html import page

__all__ = ["page"]
