"""What text in requests must look like, and the same in words: nobody should read a regular expression in an error. The
shapes of `schemas` and some queries use the patterns, `problems` the words.
"""

from typing import Final

SCOPE: Final = r"^(org|(team|project):[A-Za-z0-9][A-Za-z0-9._-]{0,62})$"
ONE_LINE: Final = r"^[^\x00-\x1f\x7f]*$"
TEAM: Final = r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$"
EVENT_ID: Final = r"^[0-9]{1,15}(\.[0-9]{1,9})?$"
#: By pattern.
MEANINGS: Final = {
    SCOPE: "A budget is 'org', 'team:NAME' or 'project:NAME', like team:vision",
    ONE_LINE: "It must be one line, without tabs and other control characters",
    TEAM: "A team's name has letters, digits, '.', '_' and '-', and begins with a letter or a digit",
    EVENT_ID: "It is the id of an event, like 1042.3",
}
