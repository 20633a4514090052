"""`penstock completion`: shell completion scripts."""

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print shell completion: eval "$(penstock completion bash)"."""
    from click.shell_completion import get_completion_class

    from penstock.cli.main import penstock

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(penstock, {}, "penstock", "_PENSTOCK_COMPLETE").source())
