"""`penstock watchman`: ends rented objects that are past their deadline, while Penstock may be dead (docs/clouds.md).
`penstock manifests watchman` prints the pod that runs it.
"""

import click


@click.command("watchman")
@click.option("-n", "--namespace", default="penstock", show_default=True, help="The namespace of its Lease.")
@click.option("--kubeconfig", default="", metavar="FILE", help="[default: the pod's own account, or kubectl's file]")
@click.option("--context", default="", help="[default: the file's current context]")
@click.option("--once", is_flag=True, help="One round, then end; exit code 1 if it failed.")
def command(namespace: str, kubeconfig: str, context: str, once: bool) -> int:
    """End rented objects past their deadline; a pod in the management cluster runs it."""
    import asyncio
    import logging
    import os
    import platform

    from penstock.capacity.watchman import Watchman
    from penstock.kube.access import Access, connect
    from penstock.kube.errors import KubeError

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    in_cluster = not kubeconfig and not context and "KUBERNETES_SERVICE_HOST" in os.environ
    access = Access(kubeconfig=kubeconfig, context=context, in_cluster=in_cluster)

    async def watch() -> int:
        cluster = connect(access)
        try:
            watchman = Watchman(cluster, namespace, platform.node())
            await (watchman.round() if once else watchman.run())
        except KubeError as error:
            click.echo(f"This round failed: {error}", err=True)
            return 1
        finally:
            await cluster.close()
        return 0

    try:
        return asyncio.run(watch())
    except KeyboardInterrupt:
        return 0
