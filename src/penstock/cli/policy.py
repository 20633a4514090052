"""`penstock policy`: check, test, compare and export a policy file; apply it, and see what was in force. Its commands
are in `policy_*`.
"""

import click

from penstock.cli.policy_apply import apply, history, rollback, show
from penstock.cli.policy_check import check
from penstock.cli.policy_diff import command as diff
from penstock.cli.policy_explain import explain
from penstock.cli.policy_export import command as export
from penstock.cli.policy_test import schema, test


@click.group("policy")
def command() -> None:
    """Check, test, explain, compare, export and apply a policy file."""


for subcommand in (check, test, explain, diff, apply, history, show, rollback, export, schema):
    command.add_command(subcommand)
