"""Explains recorded reasons and events as sentences, and tells one job's story. It uses only what was recorded."""
