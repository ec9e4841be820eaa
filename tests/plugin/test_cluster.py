"""Whole runs whose load is made by the workers of a Dask cluster, and servers at other addresses of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

Run = Callable[..., pytest.RunResult]

LOADS = """
    import pytest

    pytestmark = pytest.mark.fileperf(duration="0.1s", rounds=2, boots=1, warmup=0)

    def test_download(fileperf):
        result = fileperf.get("/", connections=4, gate="rps", tolerance="900%")
        assert [own.connections for own in result.client.generators] == [2, 2]
        assert result.server.cpu_per_request

    async def visit(client):
        async with client.step("first"):
            await client.get("/")

    def test_visit(fileperf):
        assert fileperf.run(visit, connections=2, gate="none").steps["first"].requests

    def test_alone(fileperf):
        result = fileperf.get("/", requests=11, connections=1, gate="none")
        (generator,) = result.client.generators
        assert (result.requests, generator.worker.startswith("tcp://")) == (11, True)
        assert generator.distance > 0 == generator.clock_error
"""


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    from distributed import LocalCluster  # not for each process that collects tests

    with LocalCluster(
        n_workers=2, processes=False, threads_per_worker=1, dashboard_address="127.0.0.1:0", protocol="tcp"
    ) as cluster:
        yield str(cluster.scheduler_address)


def test_the_workers_of_a_cluster_make_the_load(project: pytest.Pytester, run_apart: Run, scheduler: str) -> None:
    project.makepyfile(LOADS)
    cluster = f"--fileperf-cluster={scheduler}"
    first = run_apart("--fileperf-update=all", cluster, "--fileperf-json=run.json", "--fileperf-html=run.html", "-v")

    first.assert_outcomes(passed=3)
    first.stdout.fnmatch_lines([f"fileperf: *; load from the Dask cluster at {scheduler}; *"])
    first.stdout.re_match_lines([r" *generator 2  tcp://\S+  2 connections .*", r" .* away  same clock"])
    results = json.loads((project.path / "run.json").read_text())["results"]
    assert [len(result["summary"]["generators"]) for result in results] == [2, 2, 2, 1]  # the step is one of them
    page = (project.path / "run.html").read_text()
    assert " away · same clock" in page

    without = run_apart("--fileperf", "-k", "download", "--fileperf-generators=2")
    without.stdout.fnmatch_lines(["*INCONCLUSIVE rps: the baseline was measured in another way (load from was*"])


def test_an_app_in_this_process_is_loaded_by_no_cluster(
    project: pytest.Pytester, run_load: Run, scheduler: str
) -> None:
    project.makepyfile("def test_it(fileperf): fileperf.get('/', server='inprocess')")
    result = run_load("--fileperf", f"--fileperf-cluster={scheduler}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a Dask cluster cannot reach an inprocess server. Use another server*"])


def test_servers_listen_where_they_are_told(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import sys
        from pytest_fileperf import Command, Uvicorn

        PROGRAM = "import sys, uvicorn; uvicorn.run('server_app:app', host=sys.argv[1], port=int(sys.argv[2]))"

        def test_uvicorn(fileperf, fileperf_server):
            assert fileperf_server.url.startswith("http://[::1]:")
            assert fileperf.get("/", requests=3, gate="none").requests == 3

        def test_command(fileperf):
            server = Command([sys.executable, "-c", PROGRAM, "{host}", "{port}"], title="own")
            assert fileperf.get("/", requests=3, gate="none", server=server).requests == 3
        """
    )
    result = run_load("--fileperf", "--fileperf-host=::1", "--fileperf-server=uvicorn")
    assert result.ret == pytest.ExitCode.OK  # so few requests may leave the generator no time for anything else


def test_an_address_that_is_another_machine_s_is_told(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import sys
        from pytest_fileperf import Command

        def test_uvicorn(fileperf): fileperf.get("/")
        def test_command(fileperf): fileperf.get("/", server=Command([sys.executable, "-c", "", "{host}:{port}"]))
        """
    )
    result = run_load(
        "--fileperf", "--fileperf-host=192.0.2.1", "--fileperf-allow-host=192.0.2.1", "--fileperf-server=uvicorn"
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*no server can listen at 192.0.2.1 (*). Give an address of this machine*"] * 2)
