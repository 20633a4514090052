"""`penstock token`: creates, lists and revokes API tokens. A secret is printed once; only its hash is stored."""

import click

from penstock.cli.client import Client, talks
from penstock.cli.output import moment, print_json, table


@click.group("token")
def command() -> None:
    """Create, list and revoke API tokens."""


@command.command("make")
@click.option(
    "--role",
    type=click.Choice(["admin", "operator", "approver", "member", "viewer"]),
    default="member",
    show_default=True,
)
@click.option("--team", default="", help="Limit the token to this team.  [default: all teams]")
@click.option("--days", type=click.IntRange(1, 3650), help="Days until it expires.  [default: never]")
@click.option("--name", default="", help="Whom it is for; `penstock audit erase` erases it.  [default: nobody named]")
@talks
def make(client: Client, role: str, team: str, days: int | None, name: str, as_json: bool) -> None:
    """Create a token and print its secret once."""
    made = client.post("/v1/tokens", {"role": role, "team": team, "days": days or 0, "name": name})
    print_json(made) if as_json else click.echo(made["secret"])


@command.command("list")
@talks
def list_all(client: Client, as_json: bool) -> None:
    """List tokens, without their secrets."""
    listing = client.get("/v1/tokens")
    if as_json:
        print_json(listing)
        return
    rows = [
        [token["id"], token["name"], token["role"], token["team"] or "all", moment(token["expires_at"] * 1000 or None),
         "revoked" if token["revoked"] else "good"]
        for token in listing["tokens"]
    ]  # fmt: skip
    table("Tokens", ["token", "name", "role", "team", "until", "now"], rows, "No tokens.")


@command.command("revoke")
@click.argument("token_id", metavar="TOKEN")
@talks
def revoke(client: Client, token_id: str, as_json: bool) -> None:
    """Revoke a token by its id, at once."""
    reply = client.delete(f"/v1/tokens/{token_id}")
    print_json(reply) if as_json else click.echo(f"{reply['id']} is revoked.")
