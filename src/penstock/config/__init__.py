"""The sites file: what a platform engineer writes down about sites, prices, data and caps, in human units.

`read_sites` turns it into the core's values, or into a `BadFile` that has every error by file, line and key. Commands
import this package only when they need it: YAML and msgspec are not free. docs/sites.md explains every key.

Three passes: text to plain lists and keys (page, YAML), those to rows (convert, rows and scalars), rows to values that
make sense together (sites, offers). An error in one pass does not keep the others from finding theirs.
"""

from penstock.config.default_sites import this_machine
from penstock.config.sites import LocalSite, PolicyOptions, SitesFile, parse_sites, read_sites

__all__ = ["LocalSite", "PolicyOptions", "SitesFile", "parse_sites", "read_sites", "this_machine"]
