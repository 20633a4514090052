"""Jobs over HTTP: submitted, seen, told why, logged, cancelled, tried again, moved, planned."""

from pathlib import Path

from penstock.core.model.events import PolicySet
from penstock.core.model.types import Policy
from penstock.core.units import MINUTE
from penstock.journal.rows import Filter
from penstock.web import deps, schemas
from tests.awaiting import story
from tests.web.kit import CLOUD, LAB, WAITS, python, running


@story
async def test_a_job_is_submitted_runs_and_tells_its_story(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await penstock.submits(command=python("print('loss 0.1')"), name="finetune", env={"SECRET": "x"})
        ended = await penstock.until(job)
        assert (ended["state"], ended["name"], ended["team"], ended["offer"]) == (
            "succeeded",
            "finetune",
            "default",
            "lab/owned",
        )
        assert ended["because"]["kind"] == "OwnedFree"
        assert ended["because"]["says"] == "2 GPUs were free."
        assert ended["variables"] == ["SECRET"]
        assert "x" not in str(ended["variables"])
        assert [attempt["state"] for attempt in ended["tries"]] == ["succeeded"]
        story = (await penstock.admin.get(f"/v1/jobs/{job}/story")).json()["lines"]
        assert story[0]["text"] == "Submitted by default: 1 GPU."
        assert story[-1]["text"] == "Succeeded."
        log = await penstock.admin.get(f"/v1/jobs/{job}/log")
        assert log.text == "loss 0.1\n"
        assert log.headers["Penstock-More"] == "false"
        assert log.headers["X-Content-Type-Options"] == "nosniff"


@story
async def test_yaml_is_taken_as_well_as_json(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        text = "name: y\ngpus: 1\ncommand: 'true'\n"
        answer = await penstock.admin.post("/v1/jobs", content=text, headers={"Content-Type": "application/yaml"})
        assert answer.status_code == 201
        assert (await penstock.until(answer.json()["job"]))["command"] == ["sh", "-c", "true"]


@story
async def test_everything_wrong_with_a_job_is_one_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        answer = await penstock.admin.post("/v1/jobs", json={"gpus": 0, "comand": "x", "class": "very big"})
        assert answer.json()["detail"].startswith("The job: 3 errors.\nThe job, gpus: '0' is not")
        assert answer.json()["errors"] == [
            {"line": None, "key": "gpus", "message": "'0' is not a whole number from 1 to 100,000."},
            {"line": None, "key": "", "message": "unknown key 'comand'; did you mean 'command'?"},
            {
                "line": None,
                "key": "class",
                "message": "'very big' is not a name: up to 63 letters, digits, '-', '_' and '.', without spaces or "
                "slashes.",
            },
        ]
        yaml = {"Content-Type": "application/yaml"}
        answer = await penstock.admin.post("/v1/plan", content="command: x\ngpus: 0", headers=yaml)
        assert answer.json()["errors"] == [
            {"line": 2, "key": "gpus", "message": "'0' is not a whole number from 1 to 100,000."}
        ]


@story
async def test_what_is_wrong_with_a_job_is_one_sentence(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        answer = await penstock.admin.post("/v1/jobs", json={"gpus": 0, "command": "x"})
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"] == "The job, gpus: '0' is not a whole number from 1 to 100,000."
        yaml = {"Content-Type": "application/yaml"}
        answer = await penstock.admin.post("/v1/jobs", content="gpus: 1\ncomand: x", headers=yaml)
        assert answer.json()["detail"] == "The job, line 2: unknown key 'comand'; did you mean 'command'?"


@story
async def test_pages_list_every_job_once_newest_first(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        await penstock.admin.post("/v1/pause")
        made = [await penstock.submits(name=f"n{k}") for k in range(7)]
        seen, after = [], None
        while True:
            params = {"limit": 3} | ({"after": after} if after else {})
            page = (await penstock.admin.get("/v1/jobs", params=params)).json()
            seen += [job["id"] for job in page["jobs"]]
            after = page["next"]
            if after is None:
                break
        assert seen == made[::-1]
        answer = await penstock.admin.get("/v1/jobs", params={"text": "N3"})
        assert [job["name"] for job in answer.json()["jobs"]] == ["n3"]
        await penstock.admin.post(f"/v1/jobs/{made[2]}/cancel")
        answer = await penstock.admin.get("/v1/jobs", params={"state": ["cancelled", "succeeded"]})
        assert [job["id"] for job in answer.json()["jobs"]] == [made[2]]
        assert "deprecation" not in answer.headers
        old = await penstock.admin.get("/v1/jobs", params={"phase": ["waiting", "placed", "done"]})
        assert [job["id"] for job in old.json()["jobs"]] == [job for job in made[::-1] if job != made[2]]
        assert (old.headers["deprecation"], old.headers["link"]) == (
            "@1794873600",
            '</v1/openapi.json>; rel="deprecation"',
        )
        assert (await penstock.admin.get("/v1/jobs", params={"state": "placed"})).status_code == 422
        for job in made:
            await penstock.admin.post(f"/v1/jobs/{job}/cancel")


@story
async def test_a_page_is_what_its_shape_says(tmp_path: Path) -> None:
    """Pages are written without making the shapes; byte for byte they are the same."""
    async with running(tmp_path) as penstock:
        await penstock.until(await penstock.submits(name='Prüfung "1" \N{SNOWMAN}', priority=3))
        for team in ("a", "b"):
            await penstock.submits(penstock.team(team), gpus=2, command=WAITS, run_time="1h")
        rows = penstock.reader.jobs(Filter())
        now = max(row.decided_at or 0 for row in rows) + 7 * MINUTE
        shapes = schemas.Jobs(jobs=[deps.job_shape(row, "EUR", now) for row in rows], next=3)
        assert deps.jobs_json(rows, 3, "EUR", now) == shapes.model_dump_json().encode()
        assert {job.state for job in shapes.jobs} >= {"queued", "succeeded"}
        assert any(" min ago" in job.because.says for job in shapes.jobs if job.because)


@story
async def test_a_wrong_query_is_one_sentence(tmp_path: Path) -> None:
    wrong = {
        "limit=201": "query.limit: Input should be less than or equal to 200.",
        "limit=50&limit=x": "query.limit: Input should be a valid integer, unable to parse string as an integer.",
        "after=-1": "query.after: Input should be greater than or equal to 0.",
        "after=": "query.after: Input should be a valid integer, unable to parse string as an integer.",
        f"text={'x' * 201}": "query.text: String should have at most 200 characters.",
        "&".join(["team=a"] * 51): "query.team: List should have at most 50 items after validation, not 51.",
    }
    async with running(tmp_path) as penstock:
        for query, says in wrong.items():
            answer = await penstock.admin.get(f"/v1/jobs?{query}")
            assert (answer.status_code, answer.json()["detail"]) == (422, says)
        assert (await penstock.client("").get("/v1/jobs?limit=201")).status_code == 401
        assert (await penstock.admin.get("/v1/jobs?limit=1&limit=2&unknown=3")).json() == {"jobs": [], "next": None}


@story
async def test_a_running_job_is_cancelled_and_a_waiting_one_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        runs = await penstock.submits(command=WAITS, gpus=2, grace="1s")
        await penstock.until_prints(runs, "runs")
        waits = await penstock.submits()
        reply = (await penstock.admin.post(f"/v1/jobs/{waits}/cancel")).json()
        assert reply["so"]
        assert (await penstock.until(waits))["state"] == "cancelled"
        reply = (await penstock.admin.post(f"/v1/jobs/{runs}/cancel")).json()
        assert not reply["so"]
        assert (await penstock.until(runs))["state"] == "cancelled"
        assert (await penstock.admin.post(f"/v1/jobs/{runs}/cancel")).json()["so"]
        done = await penstock.submits()
        await penstock.until(done)
        answer = await penstock.admin.post(f"/v1/jobs/{done}/cancel")
        assert (answer.status_code, answer.json()["detail"]) == (409, f"{done} has ended; there is nothing to cancel.")


@story
async def test_an_array_is_cancelled_by_its_name(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        first = await penstock.submits(command=WAITS, gpus=2)
        array = await penstock.submits(count=3, gpus=2)
        assert (await penstock.admin.get(f"/v1/jobs/{array}/1")).json()["state"] == "queued"
        assert (await penstock.admin.post(f"/v1/jobs/{array}/cancel")).status_code == 200
        for k in range(3):
            assert (await penstock.until(f"{array}/{k}"))["state"] == "cancelled"
        assert (await penstock.until(first, "starting", "running"))["id"] == first


@story
async def test_a_failed_job_says_so_and_can_be_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await penstock.submits(command=python("raise SystemExit(3)"), name="fails")
        assert (await penstock.until(job))["state"] == "failed"
        answer = await penstock.admin.post(f"/v1/jobs/{job}/retry")
        assert answer.status_code == 201
        again = await penstock.until(answer.json()["job"])
        assert (again["state"], again["name"], again["command"][2]) == ("failed", "fails", "raise SystemExit(3)")
        assert again["id"] != job


@story
async def test_only_an_ended_job_is_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await penstock.submits(command=WAITS)
        answer = await penstock.admin.post(f"/v1/jobs/{job}/retry")
        assert answer.status_code == 409
        assert answer.json()["detail"] in [
            f"{job} is {state}; a job can be retried once it has ended." for state in ("starting", "running")
        ]


@story
async def test_a_job_moves_where_it_may_and_stays_where_it_may_not(tmp_path: Path) -> None:
    async with running(tmp_path, LAB, CLOUD) as penstock:
        job = await penstock.submits(command=WAITS, checkpoint_every="1m", grace="1s", gpus=2)
        await penstock.until_prints(job, "runs")
        answer = await penstock.admin.post(f"/v1/jobs/{job}/move", json={"offer": "cloud/none"})
        assert answer.status_code == 404
        answer = await penstock.admin.post(f"/v1/jobs/{job}/move", json={"offer": "cloud/pods"})
        assert answer.json()["says"] == "The job moves to cloud/pods."
        while (await penstock.until(job, "starting", "running"))["offer"] != "cloud/pods":
            await penstock.plane.heard(penstock.plane.number)
        answer = await penstock.admin.post(f"/v1/jobs/{job}/move", json={"offer": "cloud/pods", "x": 1})
        assert answer.status_code == 422


@story
async def test_a_plan_ranks_offers_and_records_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, LAB, CLOUD) as penstock:
        before = penstock.plane.number
        ask = {"gpus": 2, "command": "x", "run_time": "1h"}
        plan = (await penstock.admin.post("/v1/plan", json=ask)).json()
        assert (plan["answer"], plan["offer"], plan["stated"]) == ("start", "lab/owned", True)
        assert plan["jobs_ended"] == 0
        assert [choice["offer"] for choice in plan["choices"]] == ["lab/owned", "cloud/pods"]
        assert plan["choices"][1]["cost"] == plan["choices"][1]["total"] == 3_600_000
        assert (plan["tally"], plan["effects"]) == ([{"answer": "start", "offer": "lab/owned", "jobs": 1}], [])
        starts = plan
        plan = (await penstock.admin.post("/v1/plan", json={**ask, "gpu": "H100"})).json()
        assert plan["answer"] == "refuse"
        assert [(row["offer"], row["rule"]) for row in plan["excluded"]] == [
            ("cloud/pods", "GPU A100 is not one it can use"),
            ("lab/owned", "GPU A100 is not one it can use"),
        ]
        assert penstock.plane.number == before
        job = await penstock.submits(gpus=2, command="x", run_time="1h")
        story = (await penstock.admin.get(f"/v1/jobs/{job}/story")).json()
        assert starts["says"] == story["lines"][1]["text"]
        assert (starts["reason"]["kind"], starts["reason"]["says"]) == ("OwnedFree", "2 GPUs were free.")


@story
async def test_a_plan_names_who_would_make_room_to_those_who_may_know(tmp_path: Path) -> None:
    async with running(tmp_path, LAB) as penstock:
        await penstock.plane.tell(PolicySet(0, 0, Policy("preempts", preempt=True)))
        low = await penstock.submits(gpus=2, command=WAITS, team="red")
        await penstock.until(low, "running")
        ask = {"gpus": 2, "command": "x", "priority": 5}
        for client, job in ((penstock.admin, low), (penstock.team("blue"), "")):
            plan = (await client.post("/v1/plan", json=ask)).json()
            assert (plan["answer"], plan["offer"]) == ("start", "lab/owned")
            assert [(effect["job"], effect["to"], effect["reason"]["kind"]) for effect in plan["effects"]] == [
                (job, "", "Preempted")
            ]


@story
async def test_a_log_is_followed_to_its_end_and_read_in_pieces(tmp_path: Path) -> None:
    program = "import sys, time\nfor k in range(5): print('line', k, flush=True); time.sleep(0.05)"
    async with running(tmp_path) as penstock:
        job = await penstock.submits(command=python(program))
        text = (await penstock.admin.get(f"/v1/jobs/{job}/log", params={"follow": True})).text
        assert text == "".join(f"line {k}\n" for k in range(5))
        rest = await penstock.admin.get(f"/v1/jobs/{job}/log", params={"after": 7 * 3})
        assert rest.text == "line 3\nline 4\n"
        assert rest.headers["Penstock-Ended"] == "true"


@story
async def test_following_a_job_that_never_starts_ends_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await penstock.submits(gpus=50)
        assert (await penstock.admin.get(f"/v1/jobs/{job}/log", params={"follow": True})).text == ""
        assert (await penstock.until(job))["because"]["kind"] == "TooWide"
