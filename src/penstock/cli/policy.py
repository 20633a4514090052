"""`penstock policy`: check, test and explain a policy file before anybody feels it; apply it to a running Penstock, and
roll it back. Its commands are in `policy_*`.
"""

import click

from penstock.cli.policy_apply import apply, history, rollback, show
from penstock.cli.policy_check import check
from penstock.cli.policy_explain import explain
from penstock.cli.policy_test import schema, test


@click.group("policy")
def command() -> None:
    """Check, test, explain and apply a policy file."""


for one in (check, test, explain, schema, apply, history, show, rollback):
    command.add_command(one)
