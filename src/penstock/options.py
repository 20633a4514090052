"""The options of `penstock up`, in one value. The command makes it; `wiring` and `site_drivers` read it."""

from pathlib import Path

from penstock.core.values import value


@value
class Options:
    home: Path
    sites: str = ""  # a sites file; empty: this machine
    policy: str = ""  # a policy file; empty: as the sites file says
    journal: str = ""  # a file or postgresql://...; empty: in the home folder
    listen: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    rehearse: bool = False  # the sites' world is simulated
    speed: int = 1  # of a rehearsal: so many seconds in one
    stand_by: bool = False
    tls_cert: str = ""  # a certificate's file, with its key's; empty: plain HTTP
    tls_key: str = ""
    plain_http: bool = False  # also where others than this machine can read it
    proxies: str = ""  # addresses that are believed about their clients' addresses
    anchors: tuple[str, ...] = ()  # files that the journal's head is appended to; -: standard error
    accept_raised_caps: bool = False  # may the sites file raise a cap above the one in force?
    accept_clock: bool = False  # is the wall clock right, however far it is ahead?
    trust_teams: bool = False  # jobs of local sites run as our own user, whichever team's they are
    umask: int = 0o022  # of jobs that run as our own user
