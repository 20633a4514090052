"""`penstock policy`: the policy of a running Penstock. Its commands are in `policy_*`."""

import click

from penstock.cli.policy_apply import apply, history, rollback, show


@click.group("policy")
def command() -> None:
    """Apply, list, show and roll back the policy of a running Penstock."""


for one in (apply, history, show, rollback):
    command.add_command(one)
