"""The marker: closest value by key, and every problem of every test at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


def test_the_closest_marker_wins_by_key(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.fileperf(connections=1, rounds=10, boots=1, label="module")

        @pytest.mark.fileperf(connections=2, rounds=20)
        class TestClass:
            @pytest.mark.fileperf(connections=3)
            @pytest.mark.parametrize("number", [7])
            def test_method(self, fileperf, number):
                settings = fileperf._measuring._settings({"label": "verb"})
                assert (settings.connections, settings.rounds, settings.boots) == (3, 20, 1)
                assert settings.label == "verb"
                pytest.skip("right")

            def test_other(self, fileperf):
                settings = fileperf._measuring._settings({})
                assert (settings.connections, settings.rounds, settings.label) == (2, 20, "module")
                pytest.skip("right")
        """
    )
    run("--fileperf", "--fileperf-connections=99").assert_outcomes(skipped=2)


def test_problems_of_all_markers_are_told_before_any_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.fileperf(connections=0, duration="10x")
        def test_values(fileperf): raise AssertionError

        @pytest.mark.fileperf(rate=10, burst=3, max_p98="1s")
        def test_keys(fileperf): raise AssertionError

        @pytest.mark.fileperf(32)
        def test_positional(): raise AssertionError

        @pytest.mark.parametrize("number", [1, 2])
        @pytest.mark.fileperf(gate="speed")
        def test_many(fileperf, number): raise AssertionError
        """
    )
    result = run("--fileperf")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: fileperf: 7 problems:",
            "  - *::test_values: connections: 0 is not a whole number of 1 or more",
            "  - *::test_values: duration: '10x' is not a duration: *",
            "  - *::test_keys: unknown key 'max_p98' (did you mean max_p9*?); valid keys are *",
            "  - *::test_keys: burst and rate are different shapes of load: give one of them",
            "  - *::test_positional: the marker fileperf takes keywords only, as in fileperf(connections=32)",
            "  - *::test_many?1?: gate: unknown metric 'speed'; use rps, *",
            "  - *::test_many?2?: gate: unknown metric 'speed'; use rps, *",
        ]
    )


def test_the_gates_of_all_tests_to_come_share_one_error_rate(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_fileperf.plugin.active import ACTIVE

        def test_two(fileperf): pytest.skip()

        @pytest.mark.fileperf(gate="rps, p50, p99")
        @pytest.mark.parametrize("number", [1, 2])
        async def three_each(afileperf, number): pass
        test_three_each = pytest.mark.skip(three_each)

        @pytest.mark.fileperf(gate="none")
        def test_none(fileperf): pytest.skip()

        @pytest.mark.fileperf
        def test_not_measuring(fileperf_server): pass

        def test_left_out(fileperf): pass

        def test_count(request):
            print("gates:", request.config.stash[ACTIVE]._gates)
        """
    )
    run("--fileperf", "-s", "-k", "two or three or none or count").stdout.fnmatch_lines(["*gates: 8*"])
