"""A labeling page in the browser: rows one by one, several people, and a proof of when to stop."""

from surefoot.serve.server import run_site

__all__ = ["run_site"]
