"""The keys of the marker `fileperf`, with their parsers. `fileperf.get` and other methods also take these keys."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.plan.pacing import ConnectionRamp, Ramp, RateRamp, Stage
from pytest_fileperf.plan.request import Tolerance
from pytest_fileperf.plan.work import parse_pause
from pytest_fileperf.serve.likeness import takes
from pytest_fileperf.serve.spec import ServerSpec, parse_server
from pytest_fileperf.units import parse_duration_ns, parse_share, parse_size_bytes

_MOST_PER_S = 1_000_000
"""The highest rate, in requests per second: far more than a process can send, or count as dropped."""
_MOST = 10**12
"""The highest number of requests: far more than a load can make."""
AUTO = "auto"
"""Value of `generators`: as many as needed."""
_MOST_GENERATORS = 256
"""The most generators. Each is a process of some 70 MB, and machines with more cores are rare."""


def unknown_keys(names: Iterable[str], valid: Iterable[str]) -> tuple[str, ...]:
    """Returns one problem for all unknown keys together, or none."""
    known = tuple(valid)
    found = []
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            if name == "http2":
                hint = " (only journeys can use HTTP/2: write fileperf.run(journey, http2=True))"
            found.append(f"unknown key {name!r}{hint}")
    return (f"{', '.join(found)}. Valid keys are {', '.join(known)}",) if found else ()


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{value!r} isn't a number of 0 or more")
    return float(value)


def _count(value: object) -> float:
    with suppress(ValueError):
        value = float(value) if isinstance(value, str) else value
    return _number(value)


def parse_count(value: object) -> int:
    """Returns a whole number of 1 or more, from a number or a text. Raises ValueError."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} isn't a whole number of 1 or more")
    if value > _MOST:
        raise ValueError(f"{value!r} is too many: at most {_MOST:,}")
    return value


def _generators(value: object) -> int | str:
    if isinstance(value, str) and value.strip() == AUTO:
        return AUTO
    try:
        count = parse_count(value)
    except ValueError as error:
        raise ValueError(f'{error}, or "{AUTO}"') from None
    if count > _MOST_GENERATORS:
        raise ValueError(f"{value!r} is too many: at most {_MOST_GENERATORS}, and at most one per free core")
    return count


_PER_S = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600}


def _rate(value: object) -> float:
    number, _, per = value.partition("/") if isinstance(value, str) else (value, "", "")
    try:
        rate = _number(float(number) if isinstance(number, str) else number) / _PER_S[per.strip()]
    except (KeyError, ValueError):
        rate = 0.0
    if rate <= 0:
        raise ValueError(f'{value!r} isn\'t a rate. Write requests per second, as in 10 or "10/s" or "300/min"')
    if rate > _MOST_PER_S:
        raise ValueError(f"{value!r} is more than a load generator can send: at most {_MOST_PER_S:,} per second")
    return rate


_ZERO = re.compile(r"\s*0+(\.0*)?\s*(/\s*(s|min|m|h)\s*)?")
_RAMP_FORM = 'Write stages of a time and a target, as in "10s:100/s, 30s:100/s" for a rate or "10s:50" for connections'


def _ramp(value: object) -> Ramp:
    if isinstance(value, str):
        value = [tuple(part.strip() for part in stage.split(":")) for stage in value.split(",")]
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{value!r} isn't a ramp. {_RAMP_FORM}")
    stages, of_rate, problems = [], set(), []
    for item in value:
        try:
            stage, is_rate = _stage(item)
        except ValueError as error:
            problems.append(str(error))
        else:
            stages.append(stage)
            of_rate.add(is_rate)
    if problems:
        raise PlanError(*problems)
    of_rate.discard(None)
    if len(of_rate) > 1:
        raise ValueError(f"its targets mix rates and numbers of connections. {_RAMP_FORM}")
    if not any(stage.target for stage in stages):
        raise ValueError(f"no target is above 0. {_RAMP_FORM}")
    if sum(stage.duration_ns for stage in stages) == 0:
        raise ValueError(f"its stages take no time. {_RAMP_FORM}")
    return RateRamp(stages=tuple(stages)) if of_rate.pop() else ConnectionRamp(stages=tuple(stages))


def _stage(item: object) -> tuple[Stage, bool | None]:
    """Returns a ramp's stage, and whether its target is a rate. None for a plain 0, which may also mean connections."""
    if not isinstance(item, list | tuple) or len(item) != 2:
        raise ValueError(f"stage {item!r} isn't a time and a target. {_RAMP_FORM}")
    length, target = item
    is_rate = isinstance(target, str) and "/" in target
    try:
        is_zero = target == 0 or (isinstance(target, str) and _ZERO.fullmatch(target) is not None)
        level = 0.0 if is_zero else _rate(target) if is_rate else float(parse_count(target))
        stage = Stage(duration_ns=_duration_ns(length), target=level)
    except (TypeError, ValueError) as error:
        raise ValueError(f"stage {item!r}: {error}") from error
    return stage, None if level == 0 and not is_rate else is_rate


def _duration_ns(value: object) -> int:
    if not isinstance(value, str | int | float):
        raise ValueError(f'{value!r} isn\'t a duration. Write seconds, or a text as in "10s"')
    if isinstance(value, str) and value.strip().replace(".", "", 1).isdecimal():
        value = float(value)
    return parse_duration_ns(value)


def parse_positive_duration_ns(value: object) -> int:
    """Returns a duration above 0, from a number of seconds or a text such as `10s`. Raises ValueError."""
    duration_ns = _duration_ns(value)
    if duration_ns == 0:
        raise ValueError(f"{value!r} is too short: it must be above 0")
    return duration_ns


def parse_seconds(value: object) -> float:
    return parse_positive_duration_ns(value) / 1e9


def _size_bytes(value: object) -> float:
    if not isinstance(value, str | int):
        raise ValueError(f'{value!r} isn\'t a size. Write a number of bytes, or a text as in "256MiB"')
    return float(parse_size_bytes(value))


def _bytes_per_second(value: object) -> float:
    return _size_bytes(value.strip().removesuffix("/s")) if isinstance(value, str) else _number(value)


def _share(value: object) -> float:
    if not isinstance(value, str | int | float):
        raise ValueError(f'{value!r} isn\'t a share. Write a percentage or a fraction, as in "5%" or 0.05')
    return parse_share(value)


def _error_share(value: object) -> float:
    share = _share(value)
    if share > 1:
        raise ValueError(f'{value!r} is more than all requests. Write a percentage or a fraction, as in "1%" or 0.01')
    return share


def _one_tolerance(value: object) -> float:
    text, _, floor = value.partition(" and ") if isinstance(value, str) else (value, "", "")
    share = _share(text)
    if share >= 1 and not (isinstance(text, str) and "%" in text):
        raise ValueError(f'{value!r} would be {share * 100:g} %. Write a percentage or a fraction, as in "5%" or 0.05')
    return _with_floor(share, floor.strip()) if floor else share


FLOORS: Mapping[Unit, str] = {
    Unit.SECONDS: "2ms",
    Unit.PER_SECOND: "50/s",
    Unit.BYTES: "10MB",
    Unit.BYTES_PER_SECOND: "1MB/s",
    Unit.SHARE: "1%",
    Unit.COUNT: "2/request",
}
"""Examples of floors, by the metric's unit. A floor is an absolute change that a tolerance always allows."""


def _with_floor(share: float, floor: str) -> Tolerance:
    number, slash, per = floor.partition("/")
    number = number.strip()
    is_plain = number.replace(".", "", 1).isdecimal()
    tries: tuple[tuple[Unit, Callable[[str], float]], ...] = ()
    if per == "request":
        tries = ((Unit.COUNT, _count),)
    elif per == "s":
        tries = ((Unit.PER_SECOND, float) if is_plain else (Unit.BYTES_PER_SECOND, parse_size_bytes),)
    elif not slash and not is_plain:
        tries = (
            (Unit.SHARE, parse_share),
            (Unit.SECONDS, lambda text: parse_duration_ns(text) / 1e9),
            (Unit.BYTES, parse_size_bytes),
        )
    for unit, parse in tries:
        with suppress(ValueError):
            return Tolerance(share, floor=float(parse(number)), unit=unit)
    forms = ", ".join(f'"15% and {form}"' for form in FLOORS.values())
    raise ValueError(f"{floor!r} after \"and\" isn't a number with a metric's unit. Write it as in {forms}")


def _tolerance(value: object) -> float | dict[str, float]:
    """Returns one share for all gated metrics, or shares by metric from a mapping or a text: `rps=5%, p99=20%`."""
    items: Mapping[object, object]
    if isinstance(value, Mapping):
        items = value
    elif isinstance(value, str) and "=" in value:
        pairs = (item.partition("=") for item in value.split(","))
        items = {metric.strip(): share.strip() for metric, _, share in pairs}
    else:
        return _one_tolerance(value)
    problems = list(_unknown_metrics(items))
    tolerances = {}
    for metric, share in items.items():
        try:
            tolerances[str(metric)] = _one_tolerance(share)
        except ValueError as error:
            problems.append(f"{metric}: {error}")
    if problems:
        raise PlanError(*problems)
    return tolerances


def _gate(value: object) -> tuple[str, ...]:
    if value is False or value == "none":
        return ()
    if isinstance(value, str):
        names: tuple[object, ...] = tuple(name.strip() for name in value.split(","))
    elif isinstance(value, list | tuple | set | frozenset):
        names = tuple(value)
    else:
        raise ValueError(f'{value!r} isn\'t a choice of metrics. Write their names, or "none"')
    if problems := _unknown_metrics(names):
        raise PlanError(*problems)
    return tuple(name for name in METRICS if name in names)


def _unknown_metrics(names: Iterable[object]) -> tuple[str, ...]:
    unknown = [repr(name) for name in names if not isinstance(name, str) or name not in METRICS]
    return (f"unknown metric {', '.join(unknown)}. Use {', '.join(METRICS)}",) if unknown else ()


def _server(value: object) -> ServerSpec:
    if isinstance(value, str):
        return parse_server(value)
    if isinstance(value, ServerSpec):
        return value
    if isinstance(value, type) and issubclass(value, ServerSpec):
        raise ValueError(f"{value!r} is a class. Give an instance, such as Uvicorn()")
    raise ValueError(
        f"{value!r} isn't a server. Use Uvicorn(), Gunicorn(), Granian(), InProcess(), Command([…]), "
        'Url("http://…") or their names as text'
    )


def _app(value: object) -> object:
    if isinstance(value, str):
        from pytest_fileperf.serve.app import app_spec

        app_spec(value)  # checks the form only: the process that serves it imports it
    return value


def _step(value: object, *, arguments: str, counts: tuple[int, ...]) -> object:
    """Raises ValueError if the function takes another number of arguments than `counts`."""
    form = f"Write an async or plain function that takes {arguments}"
    if inspect.iscoroutine(value):
        value.close()  # nothing will await it, which would be a warning
        raise ValueError(f"{value.__name__} was called already. Give the function itself")
    if not callable(value):
        raise ValueError(f"{value!r} isn't a function. {form}")
    name = getattr(value, "__qualname__", None) or repr(value)
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        raise ValueError(f"{name} contains yield. {form}, and put the code after yield into a teardown")
    if all(takes(value, count) is False for count in counts):
        raise ValueError(f"{name} takes other arguments. {form}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} isn't a text")
    return value


_BY_UNIT: Mapping[Unit, Callable[[object], float]] = {
    Unit.PER_SECOND: _number,
    Unit.SECONDS: parse_seconds,
    Unit.BYTES: _size_bytes,
    Unit.BYTES_PER_SECOND: _bytes_per_second,
    Unit.SHARE: _error_share,
    Unit.COUNT: _count,
}
LIMITS: Mapping[str, Callable[[object], float]] = {
    metric.limit_key: _BY_UNIT[metric.unit] for metric in METRICS.values()
}
"""The keys of absolute limits, such as `max_p99`, each with its parser."""

KEYS: Mapping[str, Callable[[object], object]] = {
    "connections": parse_count,
    "requests": parse_count,
    "burst": parse_count,
    "rate": _rate,
    "ramp": _ramp,
    "duration": parse_positive_duration_ns,
    "max_duration": parse_positive_duration_ns,
    "rounds": parse_count,
    "warmup": _duration_ns,
    "pause": parse_pause,
    "timeout": parse_positive_duration_ns,
    "boots": parse_count,
    "generators": _generators,
    "app": _app,
    "server": _server,
    "workers": parse_count,
    **LIMITS,
    "tolerance": _tolerance,
    "gate": _gate,
    "watch": _gate,
    "setup": partial(_step, arguments="one argument, the httpx client of the start-up", counts=(1,)),
    "teardown": partial(_step, arguments="the httpx client of the start-up and the setup's value", counts=(2, 1)),
    "group": _text,
    "label": _text,
}
"""Every key of the marker, with its parser. Parsers raise ValueError, or PlanError for several problems."""
