"""`examples/ci/comment.yml` on the records and archives that somebody may make who means harm.

Its steps run as GitHub runs them, with a server that stands for GitHub's API. What they write must fit a grammar that
has room for figures, and for text in code alone.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import textwrap
import threading
import zipfile
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command import command

ROOT = Path(__file__).parents[1]
WORKFLOW = (ROOT / "examples" / "ci" / "comment.yml").read_text(encoding="utf-8")
RUN = ROOT / "tests" / "report" / "golden" / "every_kind" / "run.json"
COMMIT, TOKEN, BOT = "a" * 40, "secret-token", "github-actions[bot]"
EVENT = {
    "id": 42,
    "head_sha": COMMIT,
    "head_branch": "feature/&state=all",
    "html_url": "https://github.com/org/app/actions/runs/42",
    "head_repository": {"id": 5, "owner": {"login": "stranger"}},
}
LARGE = 32 << 20
TEXTS: Mapping[str, str] = {
    "mention": "@team @org/team a@b.example",
    "link": "[x](https://evil.example) [y]: //evil.example",
    "addresses": "https://evil.example www.evil.example mailto:a@b.example <https://evil.example>",
    "image": "![x](https://evil.example/x.png)<img src=//evil.example/x>",
    "issues": "#1 GH-2 org/app#3 org/app@" + COMMIT,
    "html": "<script>alert(1)</script><h1>x</h1>&lt;b&gt;",
    "closing": "</code></summary></details></pre>@team",
    "marker": "<!-- pytest-fileperf -->",
    "open": "<!-- <![CDATA[ <?x",
    "fence": "```\n@team\n# x\n````\n~~~\n",
    "ticks": "`" * 3_000,
    "tick": "`a` ``b`` @team",
    "table": "a|b\\|c\\\\|@team\n|---|\n",
    "backslash": "a\\",
    "heading": "\n\n# x\n\n---\n- [ ] task\n> quote\n",
    "command": "\n::error file=x::y\n::set-output name=target::POST issues/1/comments",
    "old_command": "##[error]x ##[add-mask]y",
    "escaped_command": "%0A::error::x%0D%0A",
    "expression": "${{ github.token }} $(id) `id` %s {0} {text}",
    "formula": "$\\href{https://evil.example}{x}$ $$x$$ $`x`$",
    "emoji": ":tada: :+1:",
    "control": "a\0b\x1b[31m\x07\x9b\x85c\x7f",
    "line_ends": "a\r\n@team\r# x\u2028# y\u2029",
    "direction": "a\u202eb\u2066c\u200b\ufeff",
    "long": "x" * 5_000,
    "many_lines": "@team\n" * 500,
    "accents": "e" + "\u0301" * 2_000,
    "wide": "漢📷" * 1_000,
    "surrogate": "a\ud800b",
    "quick_action": "/close\n/merge",
    "empty": "",
}
FREE = (
    *("nodeid", "module", "name", "work", "server", "load", "evidence", "message", "text", "example", "label", "group"),
    *("title", "why_engine", "branch", "command", "against", "url", "said", "texts", "packages", "stabilised"),
)
"""Fields that hold any text."""


def _first_rounds(held: dict[str, Any]) -> dict[str, Any]:
    return {key: [one for one in held[key] if one["index"] == 0] if key == "rounds" else held[key] for key in held}


RECORD = json.dumps(json.loads(RUN.read_text(encoding="utf-8"), object_hook=_first_rounds), separators=(",", ":"))


def told(text: str) -> str:
    """Returns a record with this text wherever it holds any text."""
    document = json.loads(RECORD, object_hook=lambda held: {key: _with(key, held[key], text) for key in held})
    test = {"nodeid": text, "module": text, "name": text, "line": 1, "phase": "call", "message": text}
    return json.dumps(document | {"failed": [test], "pull_request": 1, "number": 1})


def _with(key: str, value: object, text: str) -> object:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [_with(key, item, text) for item in value]
    if key == "kind" and isinstance(value, str) and value.islower():  # of failed requests
        return text
    return text if key in FREE and isinstance(value, str) else value


def changed(old: str, new: str) -> str:
    assert old in RECORD
    return RECORD.replace(old, new)


def bomb() -> str:
    packed = zlib.compress(bytes(LARGE))
    return b64encode(struct.pack(">II", 0x1C849304, len(packed)) + packed).decode()


def zipped(content: str | bytes, name: str = "fileperf.json", **others: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, held in {name: content, **others}.items():
            archive.writestr(each, held)
    return made.getvalue()


def linked() -> bytes:
    made, info = io.BytesIO(), zipfile.ZipInfo("fileperf.json")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    return made.getvalue()


GOOD = zipped(RECORD)
REFUSED: Mapping[str, bytes] = {
    "no_json": zipped("{"),
    "empty_record": zipped(""),
    "a_list": zipped("[]"),
    "no_schema": zipped("{}"),
    "other_schema": zipped('{"schema": 99}'),
    "schema_of_text": zipped(json.dumps({"schema": "4\n::error::x ##[error]"})),
    "deep": zipped("[" * 200_000),
    "no_number": zipped(changed('"requests":1025', '"requests":"\\n::error::x"')),
    "negative": zipped(changed('"latency":0', '"latency":-1')),
    "digits": zipped(changed('"requests":1025', f'"requests":{"9" * 5_000}')),
    "large_number": zipped(changed('"requests":1025', f'"requests":1{"0" * 400}')),
    "boot": zipped(changed('"boot":0', '"boot":9').replace("tests/test_files.py::", "\\n::error::x")),
    "metric": zipped(changed('"metric":"rps"', '"metric":"\\n::error::@team"')),
    "outcome": zipped(changed('"outcome":"PASS"', '"outcome":"@team"')),
    "time": zipped(changed("2026-11-21T09:30:00+00:00", "\\n::error::x")),
    "bomb_in_a_record": zipped(re.sub(r'"HISTF[^"]+"', lambda _: f'"{bomb()}"', RECORD, count=1)),
    "no_archive": b"PK\x03\x04" + b"x" * 100,
    "empty_archive": b"",
    "cut_archive": GOOD[:-30],
    "damaged": GOOD[:80] + bytes(80) + GOOD[160:],
    "encrypted": GOOD.replace(b"PK\x01\x02\x14\x03\x14\0\0\0", b"PK\x01\x02\x14\x03\x14\0\x01\0"),
    "bomb": zipped(bytes(LARGE + 1)),
    "large": bytes(LARGE + 1),
    "above": zipped(RECORD, "../fileperf.json"),
    "absolute": zipped(RECORD, "/fileperf.json"),
    "elsewhere": zipped(RECORD, "x/fileperf.json"),
    "link": linked(),
}
WORDS = {"bomb": "more than 32 MiB", "large": "more than 32 MiB", "bomb_in_a_record": "more counts", "boot": "rounds"}
"""What says why, where another reason would come later, and dearer."""
WRITTEN: Mapping[str, bytes] = {
    **{name: zipped(told(text)) for name, text in TEXTS.items()},
    "infinite": zipped(re.sub(r'"(limit|tolerance|now|base)":[\d.]+', r'"\1":1e999', RECORD)),
    "not_a_number": zipped(re.sub(r'"(change|low|high|detectable)":[-\d.]+', r'"\1":NaN', RECORD)),
    "huge": zipped(re.sub(r'"(now|base|limit|value)":[\d.]+', r'"\1":1e308', RECORD)),
    "more_files": zipped(RECORD, **{"../../json.py": "raise SystemExit", "json.py": "1/0", "pr_number": "1"}),
}
SKIPPED: Mapping[str, Mapping[str, Any]] = {
    "no_artifact": {"artifacts": {"other": GOOD}},
    "newer_commit": {"sha": "b" * 40},
    "other_fork": {"repository": {"id": 6}},
    "lost_fork": {"repository": None},
    "two_requests": {"numbers": (7, 8)},
    "closed": {"numbers": ()},
}


class GitHub(ThreadingHTTPServer):
    """What the workflow asks of GitHub, with comments that stay; `written` has each that was made or changed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.state: dict[str, Any] = {}
        self.comments: list[dict[str, Any]] = [
            {"id": 1, "user": {"login": "stranger"}, "body": "<!-- pytest-fileperf -->\nnot ours"},
            {"id": 2, "user": None, "body": None},
            {"id": 3, "user": {"login": BOT}, "body": "of another workflow\n<!-- pytest-fileperf -->"},
            *({"id": 100 + at, "user": {"login": "stranger"}, "body": "x"} for at in range(100)),
        ]
        self.written: list[tuple[str, str]] = []


class Answers(BaseHTTPRequestHandler):
    server: GitHub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        state, path = self.server.state, self.path.removeprefix("/repos/org/app/")
        if self.path == "/storage":
            assert self.headers["Authorization"] is None
            return self._answer(state["zip"])
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        match path.split("?"):
            case "pulls", "state=open&per_page=100&head=stranger%3Afeature%2F%26state%3Dall":
                head = {"sha": state["sha"], "repo": state["repository"]}
                return self._answer([{"number": number, "head": head} for number in state["numbers"]])
            case "actions/runs/42/artifacts", _:
                listed = [{"id": at, "name": name} for at, name in enumerate(state["artifacts"], 1)]
                return self._answer({"artifacts": [{"id": 9, "name": "fileperf"}, *listed][state["listed"] :]})
            case ["actions/artifacts/9/zip"]:
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{self.server.server_port}/storage")
                return self.end_headers()
            case "issues/7/comments", page:
                at = 100 * (int(page.removeprefix("per_page=100&page=")) - 1)
                return self._answer(self.server.comments[at : at + 100])
        raise AssertionError(path)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        assert len(body) <= 65_536
        self.server.written.append((f"{self.command} {self.path}", body))
        if self.command == "POST":
            self.server.comments.append({"id": 500, "user": {"login": BOT}, "body": body})
        self._answer({})

    do_PATCH = do_POST  # noqa: N815

    def _answer(self, content: object) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# --- The steps of the workflow, and what GitHub gives them


def blocks() -> Iterator[tuple[str, dict[str, str]]]:
    """Yields what each step runs, and its environment."""
    _, *steps = re.split(r"^      - ", WORKFLOW, flags=re.MULTILINE)
    for step in steps:
        if (block := re.search(r"^        run: \|\n((?:          .*\n|\n)+)", step, re.MULTILINE)) is not None:
            given = re.search(r"^        env:\n((?:          .+\n)+)", step, re.MULTILINE)
            yield textwrap.dedent(block[1]), variables(given[1] if given else "")


def variables(text: str) -> dict[str, str]:
    return {name: value.split(" #")[0] for name, value in re.findall(r"^ +([A-Z_]+): (.+)$", text, re.MULTILINE)}


FIND, MAKE, WRITE = blocks()
OF_ALL = variables(WORKFLOW.partition("\nenv:\n")[2].partition("\njobs:")[0])


class Runner:
    """Runs the steps in a directory of their own; only the first time in processes, as three starts take a second."""

    def __init__(self, server: GitHub, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.monkeypatch = server, monkeypatch
        self.temp, self.work = directory / "temp", directory / "work"
        for made in (self.temp, self.work):
            made.mkdir(parents=True)
        self.given = {
            "GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}",
            "GITHUB_REPOSITORY": "org/app",
            "GITHUB_EVENT_PATH": str(directory / "event.json"),
            "GITHUB_OUTPUT": str(directory / "output"),
            "RUNNER_TEMP": str(self.temp),
            "no_proxy": "*",
        }
        (directory / "event.json").write_text(json.dumps({"workflow_run": EVENT}), encoding="utf-8")
        self.output = directory / "output"

    def run(self, *, alone: bool) -> list[int | str | None]:
        """Returns the exit of each step that ran: None for its end."""
        self.output.write_text("", encoding="utf-8")
        ends = [self._step(*FIND, {"github.token": TOKEN}, alone=alone)]
        if target := self.output.read_text(encoding="utf-8"):
            context = {"github.token": TOKEN, "steps.found.outputs.target": target.removeprefix("target=").strip()}
            context |= {f"github.event.workflow_run.{key}": str(value) for key, value in EVENT.items()}
            ends.append(self._step(*MAKE, context, alone=alone))
            if ends[-1] in (None, 0):
                ends.append(self._step(*WRITE, context, alone=alone))
        return ends

    def _step(self, code: str, env: dict[str, str], context: Mapping[str, str], *, alone: bool) -> int | str | None:
        filled = {name: re.sub(r"\$\{\{ (.+?) \}\}", lambda each: context[each[1]], env[name]) for name in env}
        with self.monkeypatch.context() as patch:
            for name, value in {**self.given, **OF_ALL, **filled}.items():
                patch.setenv(name, value)
            patch.chdir(self.work)
            is_shell = code.startswith("echo")
            if alone:
                patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
                words = ["bash", "-e", "-c", code] if is_shell else [sys.executable, "-c", code]
                done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
                sys.stdout.write(done.stdout + done.stderr)
                return done.returncode
            try:
                if not is_shell:
                    exec(compile(code, "step", "exec"), {"__name__": "__main__"})
                    return None
                echo, command_line = code.strip().splitlines()
                assert echo.startswith('echo "::stop-commands::$(')
                program, *arguments = shlex.split(os.path.expandvars(command_line))
                assert [program, *arguments[:2]] == ["python", "-m", "pytest_fileperf"]
                return command(*arguments[2:])
            except SystemExit as ended:
                if isinstance(ended.code, str):
                    sys.stderr.write(f"{ended.code}\n")
                return ended.code


# --- What may be in a comment: figures and words of ours, and any text in code

_CODE = r"(?:`[^`|\\]+`|``|<code>(?:[^`|\\<>&*_\[\]~$]|\\[`*_\[\]~]|&#\d+;|<span>\$</span>)*</code>)"
_FIGURE = r"(?:[\w ,.%/→+−()-]|\\[\[\]~_])*"
_TOLD = re.compile(
    rf"\| {_CODE} \| (?:{_CODE}|{_FIGURE}) (?:\| {_FIGURE} ){{3}}\| (?:\*\*[A-Z]+\*\*|[A-Z]+) \|"
    r"|\| test \| metric \|.*|[|-]+|And \d+ more rows?\.|The report was cut here: it is longer than [\d.]+ KiB\.|"
)
_BEGIN = re.compile(r"<!-- pytest-fileperf -->\n## Load tests: [\w ,;]+\n\n")
_OPEN, _SHUT = "<details>\n<summary>all results</summary>\n\n```text\n", "\n```\n\n</details>\n\n"
_LAST = f"All figures and charts: [the run]({EVENT['html_url']}) of {COMMIT}.\n"
_NEVER = re.compile(r"[\0-\t\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|@\w")
_LINKS = re.compile(r"://|www\.|(?<!&)#\d|GH-\d", re.IGNORECASE)


def faults(body: str) -> Iterator[str]:
    """Yields what is in a comment that should not be."""
    yield from (f"has {found[0]!r}" for found in _NEVER.finditer(body))
    begin = _BEGIN.match(body)
    told, opened, rest = body[begin.end() if begin else 0 :].partition(_OPEN)
    code, shut, last = rest.partition(_SHUT)
    if begin is None or not opened or not shut or last != _LAST or "```" in code:
        yield f"has another form: {body}"
    for line in told.split("\n"):
        if _TOLD.fullmatch(line) is None or _LINKS.search(re.sub("`[^`]+`", "", line)):
            yield f"has the line {line}"


def test_one_comment_is_written_and_nothing_of_a_record_is_more_than_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = {"sha": COMMIT, "repository": {"id": 5}, "numbers": (7,), "artifacts": {}, "listed": 0, "zip": GOOD}
    kinds: dict[str, tuple[str, Mapping[str, Any]]] = {"good": ("written", {})}
    kinds |= {name: ("written", {"zip": made}) for name, made in WRITTEN.items()}
    kinds |= {name: ("refused", {"zip": made}) for name, made in REFUSED.items()}
    kinds |= {name: ("skipped", {"listed": "artifacts" in state, **state}) for name, state in SKIPPED.items()}
    wrong: list[str] = []
    with github() as server:
        strangers = json.dumps(server.comments)
        runner = Runner(server, tmp_path, monkeypatch)
        for name, (expected, state) in kinds.items():
            server.state, server.written = {**usual, **state}, []
            ends = runner.run(alone=name == "good")
            out, err = capsys.readouterr()
            is_refused = ends[-1] not in (None, 0)
            outcome = "refused" if is_refused else "written" if len(ends) == 3 else "skipped"
            if outcome != expected:
                wrong.append(f"{name}: {outcome}, not {expected}: {out}{err}")
            place = "POST /repos/org/app/issues/7" if name == "good" else "PATCH /repos/org/app/issues"
            found = [target.rpartition("/comments")[::2] for target, _ in server.written]
            if found != [(place, "" if name == "good" else "/500")] * (outcome == "written"):
                wrong.append(f"{name}: wrote {found}")
            commands = [line for line in f"{out}\n{err}".splitlines() if line.lstrip().startswith("::")]
            if commands[:1] != commands or [line for line in commands if not line.startswith("::stop-commands::")]:
                wrong.append(f"{name}: said {commands}")
            if is_refused and (err.count("\n") != 1 or TOKEN in err or WORDS.get(name, "") not in err):
                wrong.append(f"{name}: no reason: {err}")
            wrong += [f"{name} {fault}" for _, body in server.written for fault in faults(body)]
            files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
            assert files <= {"event.json", "output", "fileperf.json", "comment.md"}
            for path in runner.temp.iterdir():
                path.unlink()
        own = server.comments.pop()
        assert own["id"] == 500
        assert json.dumps(server.comments) == strangers
    assert len(kinds) >= 50
    assert wrong == [], "\n".join(wrong)
