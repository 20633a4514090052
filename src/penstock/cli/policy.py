"""`penstock policy`: check, test and explain a policy file before anybody feels it. Its commands are in `policy_*`."""

import click

from penstock.cli.policy_check import check
from penstock.cli.policy_explain import explain
from penstock.cli.policy_test import schema, test


@click.group("policy")
def command() -> None:
    """Check, test and explain a policy file."""


for one in (check, test, explain, schema):
    command.add_command(one)
