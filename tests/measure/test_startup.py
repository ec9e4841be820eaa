"""Which imports make a start-up longer, by what Python tells of them."""

from __future__ import annotations

import pytest

from pytest_fileperf.measure.startup import ImportTimes, grown_imports, import_times

LOG = """\
import time: self [us] | cumulative | imported package
import time:       100 |        100 |   encodings
import time:       900 |       1000 | site
the app says: import time: never
import time:       200 |        200 |       numpy._core
import time:     30000 |      30200 |     numpy
import time:     40000 |      70200 |   pandas
import time:      5000 |       5000 |   app.reports
import time:      2000 |      77200 | app.main
import time:       700 |        700 | pytest_fileperf.serve.job
import time:       300 |        300 | app.main
"""


def test_modules_of_the_app_are_apart_and_packages_are_one() -> None:
    found = import_times(LOG, ["/project/app/main.py", "/project/app/reports/__init__.py"], workers=2)
    assert {name: round(1e6 * seconds) for name, seconds in found.seconds.items()} == {
        "encodings": 50, "site": 450, "numpy": 15100, "pandas": 20000, "app.reports": 2500, "app.main": 1150,
    }  # fmt: skip
    assert {name: found.importers[name] for name in ("numpy", "pandas", "app.reports", "app.main")} == {
        "numpy": "pandas", "pandas": "app.main", "app.reports": "app.main", "app.main": "",
    }  # fmt: skip
    assert import_times("INFO: started\n", []).seconds == {}


def looks(*seconds: dict[str, float]) -> list[ImportTimes]:
    return [ImportTimes(seconds=own, importers={"pandas": "app.main"}) for own in seconds]


OLD = {"app.main": 0.01, "helper": 0.1}


@pytest.mark.parametrize(
    "nows, names",
    [
        pytest.param([OLD | {"helper": 0.4}, OLD | {"helper": 0.41}], ["helper"], id="longer"),
        pytest.param([OLD | {"pandas": 0.25, "numpy": 0.1}] * 2, ["pandas", "numpy"], id="new"),
        pytest.param([OLD | {"helper": 0.24}] * 2, [], id="less than half of it"),
        pytest.param([OLD | {"helper": 0.9}, OLD], [], id="in one look only"),
        pytest.param([OLD | {f"part{at}": 0.01 for at in range(30)}] * 2, [], id="many small ones"),
    ],
)
def test_imports_are_named_that_account_for_half_of_the_growth(nows: list[dict[str, float]], names: list[str]) -> None:
    found = grown_imports(0.3, looks(OLD, OLD), looks(*nows))
    assert [each.name for each in found] == names
    assert all(each.importer == ("app.main" if each.name == "pandas" else "") for each in found)
