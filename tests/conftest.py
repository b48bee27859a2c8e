"""Choice of tests (`--fast`) and the table of what ran, what did not, and why."""

import os
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings

# These machines are shared: how long an example takes says nothing about it. Where the
# result decides about main, the examples are the same in every run.
settings.register_profile(
    "taxiway",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("taxiway")

LEFT_OUT_BY_FAST = ("integration", "e2e", "slow", "gpu")
KINDS = ("e2e", "integration", "slow", "gpu")
"""Markers that name a test's kind, the first that fits; `unit` without any."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help=f"leave out tests marked {', '.join(LEFT_OUT_BY_FAST)}",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Table(), "taxiway-table")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if config.getoption("--fast"):
        for item in items:
            if kind_of(item) != "unit":
                item.add_marker(pytest.mark.skip(reason="left out by --fast"))
    # The quick ones first: a typo is told before a pipeline runs.
    items.sort(key=lambda item: kind_of(item) != "unit")


def kind_of(item: pytest.Item) -> str:
    return next((kind for kind in KINDS if item.get_closest_marker(kind)), "unit")


@dataclass(eq=False)  # pytest wants plugins that can be hashed
class Table:
    """Counts tests by kind and outcome as their reports come in."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # Travels with the report, from xdist's workers too.
        report.user_properties.append(("kind", kind_of(item)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kind = str(dict(report.user_properties)["kind"])
        self.seconds[kind] += report.duration
        if report.skipped:
            self.outcomes[kind, "not run"] += 1
            self.reasons.setdefault(kind, Counter())[_reason(report)] += 1
        elif report.failed:
            self.outcomes[kind, "failed"] += 1
        elif report.when == "call":
            self.outcomes[kind, "passed"] += 1

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        terminalreporter.section("what ran")
        for line in (*_checks(), *self._tests()):
            terminalreporter.write_line(line)

    def _tests(self) -> Iterator[str]:
        for kind in ("unit", *KINDS):
            passed, failed, not_run = (
                self.outcomes[kind, outcome]
                for outcome in ("passed", "failed", "not run")
            )
            if passed + failed + not_run == 0:
                continue
            yield (
                f"{kind + ' tests':<18}{passed:>5} passed{failed:>5} failed"
                f"{not_run:>5} not run{self.seconds[kind]:>8.1f} s"
            )
            for reason, times in self.reasons.get(kind, Counter()).most_common():
                yield f"{'':<18}{times:>5} not run: {reason}"


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(getattr(report, "wasxfail", "skipped"))


def _checks() -> Iterator[str]:
    """Yield a line for each check that scripts/test ran before the tests."""
    for line in os.environ.get("TAXIWAY_CHECKS", "").splitlines():
        name, result, seconds = line.split("\t")
        yield f"{name:<18}{result:>12}{seconds:>30} s"
