"""`penstock policy test` runs the cases beside a policy file; `penstock policy schema` prints its JSON Schema."""

import click


@click.command("test")
@click.argument("file", default="policy.yaml")
@click.option(
    "--cases", default="", metavar="FILE", help="File of cases.  [default: policy_test.yaml beside the policy]"
)
@click.option("--sites", default="", metavar="FILE", help="Sites file, instead of the one that the cases name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def test(file: str, cases: str, sites: str, as_json: bool) -> int:
    """Run the cases of a policy: a job, offers, and the expected verdict.

    FILE is the policy file, by default policy.yaml. Exit code 1 if a case fails.
    """
    from penstock.cli.output import safe
    from penstock.cli.terminal import print_json
    from penstock.live.config_facts import policy_of
    from penstock.policy.cases import beside, read_cases, run_cases
    from penstock.policy.file import governed, read_policy

    path = cases or beside(file)
    suite = read_cases(path, sites)
    policy = policy_of(governed(suite.sites, read_policy(file, suite.sites)))
    results = list(run_cases(suite, policy))
    failed = [result for result in results if result.faults]
    if as_json:
        rows = [
            {"name": result.case.name, "line": result.case.line, "passed": not result.faults, "faults": result.faults}
            for result in results
        ]
        print_json({"file": file, "cases": rows, "passed": len(results) - len(failed), "failed": len(failed)})
        return int(bool(failed))
    for result in results:
        click.echo(safe(f"{'FAIL' if result.faults else 'PASS'}  {result.case.name}"))
        for fault in result.faults:
            click.echo(safe(f"      {path}, line {result.case.line}: {fault}"))
    click.echo(f"{len(results) - len(failed):,} passed, {len(failed):,} failed.")
    return int(bool(failed))


@click.command("schema")
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    import json

    from penstock.policy.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
