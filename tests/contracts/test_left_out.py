"""What happened beside the figures is said in a line with its count."""

from __future__ import annotations

import re

from contracts.project import Project, results

APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
TESTS = """
from pytest_fileperf import Command

GUNICORN = ["{python}", "-m", "gunicorn", "--max-requests", "100", "-w", "2", "-b", "{host}:{port}", "app:app"]

def test_get(fileperf):
    fileperf.get("/", server=Command(GUNICORN), connections=2, duration="1.5s", boots=1, gate="none", max_error_rate=1)
"""


def test_workers_that_restart_and_connections_that_close_are_counted(project: Project) -> None:
    ran = project.write({"app.py": APP, "test_load.py": TESTS}).run()

    assert ran.status == 0, ran.text
    (boot,) = results(ran)["test_get"]["boots"]
    assert boot["processes_ended"] >= 1
    assert f"{boot['processes_ended']} process" in ran.said, ran.text
    assert "ended during the load" in ran.said, ran.text
    assert re.search(r"the server closed the connection after each answer: [\d,]+ connections were opened", ran.said)
