"""`penstock redecide`: feeds recorded facts to this engine, and lists promises that differ."""

import click

SHOWN = 5


@click.command("redecide")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: str, as_json: bool) -> int:
    """Replay a journal's facts and list decisions this version would change.

    Equal: exit 0. Different: the first differences, and exit 1. After a difference each step is decided from the
    recorded past, so that one difference is not counted as a thousand.
    """
    from penstock.cli import terminal
    from penstock.journal.open import read
    from penstock.journal.redecide import redecide
    from penstock.policy.rules import PolicyRules

    verdict = redecide(read(file), SHOWN, PolicyRules())
    if as_json:
        terminal.print_json(verdict)
    elif not verdict.different:
        click.echo(f"Equal: {verdict.steps:,} steps, {verdict.promises:,} promises decided again, row for row.")
    else:
        click.echo(f"{verdict.different:,} of {verdict.steps:,} steps would be decided differently. The first:")
        for step in verdict.first:
            click.echo(f"  step {step.number}")
            for sign, lines in (("-", step.recorded), ("+", step.now)):
                for line in lines:
                    click.echo(f"    {sign} {line}")
    return 1 if verdict.different else 0
