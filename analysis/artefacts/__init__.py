"""One function per table and figure. Every module here is found by :mod:`analysis.registry`."""
