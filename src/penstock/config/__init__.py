"""Parses the sites file and the job file: human units in, the core's values out, all errors in one answer.

`read_sites` returns values, or raises a `BadFile` with every error by file, line and key. Commands import this package
only when they need it: YAML and msgspec are slow to import. docs/sites.md explains every key.

Three passes: text to plain lists and keys (`document`, YAML), those to rows (`convert`, `sections`, `scalars`), rows to
values that make sense together (`sites`, `offers`). An error in one pass does not keep the others from finding theirs.
"""

from penstock.config.default_sites import this_machine
from penstock.config.sites import LocalSite, PolicyOptions, SitesFile, parse_sites, read_sites, unmatched_caps

__all__ = ["LocalSite", "PolicyOptions", "SitesFile", "parse_sites", "read_sites", "this_machine", "unmatched_caps"]
