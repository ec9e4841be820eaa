"""A first run of a new project: what it shows, and what it leaves."""

from __future__ import annotations

from command import command
from contracts.project import Project, results

APP = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
"""
TESTS = """
def test_get(fileperf):
    fileperf.get("/", connections=2, duration="0.3s", boots=1, warmup="0.1s")
"""


def test_a_run_is_shown_and_recorded_and_stores_nothing_unasked(project: Project) -> None:
    ran = project.write({"app.py": APP, "test_load.py": TESTS}).run("-v")

    assert ran.status == 0, ran.text
    assert "collected 1 item fileperf: comparing 1 load test may take up to about 40 s, and some" in ran.said, ran.text
    assert "test_get" in ran.said, ran.text
    assert "NEW" in ran.said, ran.text
    assert results(ran)["test_get"]["summary"]["requests"] > 0
    assert not (project.top / ".fileperf").exists()
    (project.top / "test_plain.py").write_text("def test_plain(): pass", encoding="utf-8")
    nothing = project.run("test_plain.py")
    assert (nothing.status, "python -m pytest_fileperf new" in nothing.said) == (0, True), nothing.text
    (project.top / "test_plain.py").unlink()

    # Tests that are written work, and delete nothing.
    project.write({"api.json": '{"paths": {"/item": {"get": {}, "delete": {}}}}'})
    new = project.top / "test_new.py"
    assert command("new", str(project.top / "api.json"), f"--output={new}") == 0
    deleting = [line for line in new.read_text(encoding="utf-8").splitlines() if "delete" in line]
    assert deleting
    assert all(line.startswith("# ") for line in deleting), deleting

    for options, said in (((), "2 skipped"), (("--fileperf-smoke",), "2 passed")):
        ran = project.run(*options, asked=False)
        assert (ran.status, said in ran.said) == (0, True), ran.text
