"""Steps of journeys in whole runs: figures, limits, gates and baselines of each, and users that stay themselves."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from plugin.projects import UNTIL_IT_SHOWS
from versions.repositories import Repo, needs_git

from pytest_fileperf.report.record_file import read_record

Run = Callable[..., pytest.RunResult]
QUICK = ("--fileperf-duration=0.3s", "--fileperf-rounds=2", "--fileperf-boots=1", "--fileperf-warmup=0")
VISIT = """
    from pytest_fileperf import part

    async def visit(client):
        async with client.step("login"):
            (await client.get("/login")).raise_for_status()
        await client.pause("1ms")
        for _ in range(2):
            async with client.step("download"):
                (await client.get("/file")).raise_for_status()

"""
JOURNEY = f"""{VISIT}
    def test_visit(fileperf):
        result = fileperf.run(visit, steps={{steps}}, connections=2, gate="p50", tolerance="900%")
        assert set(result.steps) == {{{{"login", "download"}}}}
        assert abs(result.steps["download"].requests - 2 * result.requests) <= 4
        assert abs(result.http_requests - 3 * result.requests) <= 6
        assert result.http_rps > 2 * result.rps
        assert 0 < result.steps["login"].latency.p50 < result.latency.p50
"""


def test_each_step_has_figures_and_where_asked_a_baseline(project: pytest.Pytester, run_load: Run) -> None:
    asked = {"login": {"gate": "p50", "tolerance": "900%", "max_p50": "10s"}}
    project.makepyfile(JOURNEY.format(steps=asked))
    stored = run_load("--fileperf-update=new", *QUICK)
    stored.assert_outcomes(passed=1)
    stored.stdout.fnmatch_lines(["test_visit *NEW", "test_visit #login *NEW", "test_visit #download *-"])
    assert "requests/s counts iterations: " in stored.stdout.str()
    (file,) = (project.path / ".fileperf").rglob("*.json")
    keys = [key.partition("::")[2] for key in json.loads(file.read_text())["tests"]]
    assert keys == ["test_visit", "test_visit#login"]

    more = ("--fileperf-json=out.json", "--fileperf-html=out.html")
    compared = run_load("--fileperf", *more, "--fileperf-confirm=never", "-v", *QUICK)
    compared.assert_outcomes(passed=1)
    compared.stdout.no_fnmatch_line("*stale*")
    record = read_record(project.path / "out.json")
    found = {result.test.step: result for result in record.results}
    assert list(found) == ["", "login", "download"]
    assert [comparison.metric for comparison in found["login"].verdict.comparisons] == ["p50"]
    assert [check.name for check in found["login"].verdict.limits] == ["max_p50"]
    assert found["download"].verdict.comparisons == ()
    assert found["login"].recording.latency().count >= found[""].recording.latency().count
    told = {each["test"]["step"]: each for each in json.loads((project.path / "out.json").read_text())["results"]}
    assert told[""]["summary"]["http_requests"] > 2 * told[""]["summary"]["requests"]
    assert told["login"]["work"] == "step login of visit"
    html = (project.path / "out.html").read_text()
    assert "test_visit #download" in html
    assert "requests/s counts iterations: " in html


def test_the_limit_of_a_step_fails_the_test(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(JOURNEY.format(steps={"download": {"max_p50": "1ns"}}))
    result = run_load("--fileperf", *QUICK)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*LimitExceededError: *#download*", "test_visit #download *LIMIT"])


@pytest.mark.parametrize("server", ["uvicorn", "inprocess"])
def test_journeys_of_a_mix_have_steps_also_by_a_rate_and_in_a_smoke_run(
    project: pytest.Pytester, run_load: Run, server: str
) -> None:
    project.makepyfile(
        f"""{VISIT}
    def test_mix(fileperf):
        asked = part.run(visit, steps={{"login": {{"max_p99": "10s"}}}})
        result = fileperf.mix({{asked: 1, part.get("/", name="page"): 2}}, rate=60, gate="none")
        visits, (login, download) = result.parts["visit"], result.parts["visit"].steps.values()
        assert not result.steps and not result.parts["page"].steps
        assert login.requests == visits.requests == download.requests / 2
        assert result.http_requests == result.requests + 2 * visits.requests
        """
    )
    arguments = ("--fileperf-smoke",) if server == "uvicorn" else ("--fileperf", *QUICK)
    result = run_load(f"--fileperf-server={server}", *arguments)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_mix #visit#login *"])


def test_steps_that_cannot_be_judged_get_sentences(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        f"""{VISIT}
    import pytest
    from pytest_fileperf import PlanError

    async def no_steps(client):
        await client.get("/")

    CASES = {{
        "step 'logout' was never reached; reached: download, login": (visit, {{"logout": {{}}}}),
        "step 'login' was never reached; no step was reached": (no_steps, {{"login": {{}}}}),
        "steps: ['login'] is no mapping": (visit, ["login"]),
        "steps: login: '50ms' is no mapping": (visit, {{"login": "50ms"}}),
        "steps: a#b: 'a#b' is not a name": (visit, {{"a#b": {{}}}}),
        "steps: login: unknown key 'max_p98' (did you mean max_p99?)": (visit, {{"login": {{"max_p98": 1}}}}),
        "steps: login: unknown key 'max_rss'": (visit, {{"login": {{"max_rss": 1}}}}),
        "steps: login: gate: rss: known of the whole load, and not of a step": (visit, {{"login": {{"gate": "rss"}}}}),
        "steps: login: max_p99: ": (visit, {{"login": {{"max_p99": "soon"}}}}),
    }}

    @pytest.mark.parametrize("problem", CASES)
    def test_problem(fileperf, problem):
        journey, steps = CASES[problem]
        with pytest.raises(PlanError) as caught:
            fileperf.run(journey, steps=steps)
        assert problem in str(caught.value)

    def test_problem_of_a_part(fileperf):
        with pytest.raises(PlanError, match="steps: login: unknown key 'rate'"):
            fileperf.mix({{part.run(visit, steps={{"login": {{"rate": 5}}}}): 1}})
        with pytest.raises(PlanError, match="step 'visit#logout' was never reached; reached: visit#download, visit#lo"):
            fileperf.mix({{part.run(visit, steps={{"logout": {{}}}}): 1}})

    def test_capacity(fileperf):
        with pytest.raises(PlanError, match="steps: a search for the capacity"):
            fileperf.capacity.run(visit, steps={{"login": {{}}}}, max_p99="1s")
        """
    )
    run_load("--fileperf-smoke").assert_outcomes(passed=11)


def test_a_step_of_the_warm_up_alone_has_no_figures(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import pytest
        from pytest_fileperf import PlanError

        been = set()

        async def visit(client):
            if "login" not in been:
                been.add("login")
                async with client.step("login"):
                    await client.get("/")
            async with client.step("work"):
                await client.get("/")

        def test_not_asked(fileperf):
            result = fileperf.run(visit, gate="none")
            assert list(result.steps) == ["work"]

        def test_asked(fileperf):
            been.clear()
            with pytest.raises(PlanError, match="step 'login' was reached in the warm-up only"):
                fileperf.run(visit, gate="none", steps={"login": {}})
        """
    )
    run_load("--fileperf", *QUICK[:-1], "--fileperf-warmup=0.2s").assert_outcomes(passed=2)


def test_a_step_that_fails_is_told_by_its_name(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        async def visit(client):
            async with client.step("login"):
                (await client.get("/")).raise_for_status()
            async with client.step("download"):
                (await client.get("/status/404")).raise_for_status()

        def test_visit(fileperf):
            fileperf.run(visit, gate="none", steps={"login": {"max_error_rate": 0}, "download": {}})
        """
    )
    result = run_load("--fileperf", *QUICK)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*#download: none of * requests succeeded: status 404",
            "test_visit #login *-",
            "test_visit #download *FAILED",
        ]
    )


def test_a_failure_that_a_journey_expects_fails_where_that_is_asked(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import pytest

        async def visit(client):
            for path in ("/", "/status/404"):
                try:
                    async with client.step("download"):
                        (await client.get(path)).raise_for_status()
                except Exception:
                    pass

        @pytest.mark.parametrize("allowed", [None, 0])
        def test_visit(fileperf, allowed):
            result = fileperf.run(visit, gate="none", steps={"download": {"max_error_rate": allowed}})
            assert result.errors == 0
            assert result.steps["download"].errors > 0
        """
    )
    run_load("--fileperf", *QUICK).assert_outcomes(passed=1, failed=1)


@needs_git
def test_the_step_that_got_slower_is_told_in_turn_with_another_version(repo: Repo, run_load: Run) -> None:
    asked = {name: {"gate": "p50", "tolerance": "100%"} for name in ("login", "download")}
    test = f"def test_visit(fileperf):\n    fileperf.run(visit, steps={asked}, gate='none')\n"
    (repo.top / "test_it.py").write_text(VISIT.replace("\n    ", "\n") + test)
    app = repo.top / "server_app.py"
    slow = "    if scope['path'] == '/login':\n        import asyncio; await asyncio.sleep(0.03)\n    status = "
    app.write_text(app.read_text().replace("    status = ", slow))

    short = ("--fileperf-server=uvicorn", "--fileperf-max-duration=2s", "--fileperf-connections=2")
    result = run_load("--fileperf-against=HEAD", "--fileperf-json=out.json", *short, UNTIL_IT_SHOWS)

    result.assert_outcomes(failed=1)
    results = {one.test.step: one for one in read_record(repo.top / "out.json").results}
    assert str(results["login"].standing) == "REGRESSED"
    assert str(results["download"].standing) in ("PASS", "INCONCLUSIVE")  # as busy as the machine is
    assert results["login"].base is not None
    assert len(results["login"].pairs) >= 3


COOKIES = """
    import itertools
    from fastapi import FastAPI, Request, Response

    app, numbers, users = FastAPI(), itertools.count(), set()

    @app.post("/login")
    async def login(response: Response) -> str:
        users.add(user := str(next(numbers)))
        response.set_cookie("user", user)
        return user

    @app.get("/me")
    async def me(request: Request) -> list[str]:
        assert request.cookies["user"] in users, "a user of another boot"
        return [request.headers["cookie"], request.headers["x-token"]]

    @app.get("/users")
    async def count() -> int:
        return len(users)
"""


def test_what_a_user_keeps_stays_with_that_user(project: pytest.Pytester, run_load: Run) -> None:
    """A server gives each user a cookie, and tells with each request who asks: in all rounds, boots and parts."""
    project.makepyfile(
        cookie_app=COOKIES,
        test_users="""
        import asyncio
        from pytest_fileperf import part

        USERS = {}  # who each client is, kept apart from it

        async def visit(client):
            if client not in USERS:
                async with client.step("login"):
                    USERS[client] = (await client.post("/login")).json()
                    client.headers["X-Token"] = "token of " + USERS[client]
            mine = ["user=" + USERS[client], "token of " + USERS[client]]
            await client.pause("30ms")
            async with client.step("alone"):
                assert (await client.get("/me")).json() == mine
            async with client.step("together"):
                answers = await asyncio.gather(*(client.get("/me") for _ in range(3)))
                assert [answer.json() for answer in answers] == [mine] * 3

        async def other(client):
            await visit(client)

        async def count(client):
            USED.append((await client.get("/users")).json())

        USED = []

        def test_journey(fileperf):
            result = fileperf.run(visit, connections=6, teardown=count, gate="none", boots=1)
            assert result.requests > 12
            assert USED == [6]

        def test_mix(fileperf):
            result = fileperf.mix({visit: 1, other: 2}, connections=6, teardown=count, gate="none", boots=2)
            assert result.parts["other"].steps["together"].http_requests > 18
            assert all(6 <= used <= 6 + 12 for used in USED[-2:])  # one boot has those of the journey, too
        """,
    )
    arguments = ("--fileperf-duration=0.8s", "--fileperf-rounds=6", "--fileperf-warmup=0.1s", "-pno:randomly")
    result = run_load("--fileperf-server=uvicorn", "--fileperf-app=cookie_app:app", "--fileperf", *arguments)
    result.assert_outcomes(passed=2)
