"""`kubectl penstock apply`: manifests to the cluster, with Jobs that ask for GPUs as home Jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.clusters import ask, reaches
from penstock.cli.manifest_files import ManifestDocument, documents
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.front.applying import Applied
    from penstock.kube.client import Cluster

Json = dict[str, Any]
REFUSED, WRONG = 1, 2  #: exit codes: the cluster refused something; a document is wrong


@click.command("apply")
@click.option(
    "-f", "--filename", "paths", required=True, multiple=True, metavar="FILE", help="File, folder or -; repeatable."
)
@click.option("-R", "--recursive", is_flag=True, help="Also the folders in a folder.")
@click.option("--team", default="", help="Team whose budget pays.  [default: the Job's label]")
@reaches
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[str, ...], recursive: bool, team: str, as_json: bool, **where: Any) -> int:
    """Apply manifests; Penstock schedules the Jobs that ask for GPUs."""
    manifests = list(documents(paths, recursive=recursive))
    if not manifests:
        raise BadInput("There is nothing to apply in what -f names.")
    run = ApplyRun(team, where["namespace"], as_json=as_json)
    ask(where, lambda cluster: run.all(cluster, manifests))
    return run.end()


class ApplyRun:
    """Applies one document after the other, as kubectl does: an error stops none of the others."""

    def __init__(self, team: str, namespace: str, *, as_json: bool = False) -> None:
        self.team, self.namespace, self.as_json = team, namespace, as_json
        self.rows: list[Json] = []
        self.code = self.untried = 0

    async def all(self, cluster: "Cluster", manifests: Sequence[ManifestDocument]) -> None:
        from penstock.front.applying import Applier
        from penstock.kube.errors import Forbidden, KubeError, Unavailable

        applier = Applier(cluster, self.team, self.namespace)
        for tried, document in enumerate(manifests, start=1):
            try:
                if document.error:
                    raise BadInput(document.error)
                self._applied(document, await applier.apply(document.manifest))
            except BadInput as error:
                self._failed(document, str(error), WRONG)
            except Unavailable as error:
                self._failed(document, str(error), REFUSED)
                self.untried = len(manifests) - tried
                return
            except Forbidden as error:
                words = f"the cluster does not let you {error.verb} {error.resource}: {error}"
                self._failed(document, words, REFUSED)
            except KubeError as error:
                self._failed(document, str(error), REFUSED)

    def end(self) -> int:
        """Print the collected answers as JSON if asked for, and return the exit code."""
        if self.as_json:
            from penstock.cli.terminal import print_json

            print_json(self.rows)
        failed = sum("error" in row for row in self.rows)
        if failed:
            count, more = len(self.rows) + self.untried, f", {self.untried} were not tried" if self.untried else ""
            click.echo(f"{failed} of {count} documents failed{more}. Nothing that was applied is undone.", err=True)
        return self.code

    def _applied(self, document: ManifestDocument, applied: "Applied") -> None:
        from penstock.cli.output import safe

        row = {"place": document.place, "name": applied.name, "namespace": applied.namespace}
        self.rows.append({**row, "outcome": applied.outcome, "diff": applied.diff, "note": applied.note})
        if self.as_json:
            return
        for text in (applied.diff, applied.note):
            if text:
                click.echo("\n".join(safe(line) for line in text.splitlines()), err=True)
        click.echo(safe(applied.line))

    def _failed(self, document: ManifestDocument, words: str, code: int) -> None:
        from penstock.cli.output import safe

        self.code = max(self.code, code)
        self.rows.append({"place": document.place, "error": words})
        click.echo(safe(f"Error: {document.place}: {words}"), err=True)
