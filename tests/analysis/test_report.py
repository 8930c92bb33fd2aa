from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from browser import Browser, browse
from result_folders import TABLE6_POINTS, Folder, table6_folder

from analysis.__main__ import main
from analysis.load.results import Results
from analysis.registry import artefacts
from analysis.report import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of Table 6's first rows and Fig. 3: every other item says what is missing."""
    folder = table6_folder(Folder(tmp_path_factory.mktemp("report")), TABLE6_POINTS[:2])
    folder.timelines("fig3_schedules", ("dapple", "1f1b_int", "chimera", "bitpipe"))
    return write_report(Results(folder.root))


@pytest.fixture(scope="module")
def page(report: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browse(tmp_path_factory.mktemp("profile")) as browser:
        browser.open(report)
        yield browser


def test_it_has_every_artefact_with_how_to_make_it_again(report: Path) -> None:
    text = report.read_text()
    for artefact in artefacts().values():
        assert f'<section id="{artefact.id}"' in text
        assert artefact.rerun in text
        assert f"python -m analysis {artefact.id}<" in text
    assert "holds no record of fig8_memory_pp" in text
    assert text.count(f" of {len(artefacts())} artefacts are drawn; missing: ") == 1


def test_claims_and_provenance_are_in_it(report: Path) -> None:
    text = report.read_text()
    for part in ("not reproduced", "cannot be told", "0123456789ab", "Table 3, bubble ratios"):
        assert part in text


def test_without_results_there_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--results", str(tmp_path)]) == 2
    assert capsys.readouterr().err.strip().count("\n") == 0


@pytest.mark.needs("chromium")
def test_it_loads_without_errors_and_asks_for_nothing(page: Browser, report: Path) -> None:
    assert page.of("Runtime.exceptionThrown") == []
    assert [one for one in page.of("Log.entryAdded") if one["entry"]["level"] == "error"] == []
    assert [one for one in page.of("Runtime.consoleAPICalled") if one["type"] in ("error", "warning")] == []
    assert page.of("Network.loadingFailed") == []
    asked = {one["request"]["url"] for one in page.of("Network.requestWillBeSent")}
    assert {url for url in asked if not url.startswith("data:")} == {report.as_uri()}
    assert page.run("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


@pytest.mark.needs("chromium")
def test_it_can_be_read_on_a_narrow_screen(page: Browser) -> None:
    page.width(360)
    assert page.run("document.documentElement.scrollWidth") <= 360
    assert page.run("parseFloat(getComputedStyle(document.body).fontSize)") >= 14
    page.width(1200)


@pytest.mark.needs("chromium")
def test_it_can_be_used_with_the_keyboard(page: Browser) -> None:
    page.press("Tab", 9)
    assert page.run("document.activeElement.className") == "skip"
    canvas = "document.querySelector('.bp-timeline > canvas')"
    page.run(f"{canvas}.focus()")
    before = page.run(f"{canvas}.toDataURL()")
    page.press("+", 187, "+")
    page.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    assert page.run(f"{canvas}.toDataURL()") != before
    out_of_reach = "[...document.querySelectorAll('a,button,summary,.scroll')].filter(e => e.tabIndex < 0)"
    assert page.run(f"{out_of_reach}.length") == 0


@pytest.mark.needs("chromium")
def test_everything_has_a_name_for_who_cannot_see_it(page: Browser) -> None:
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    wanted = {"link", "button", "image", "img", "region", "heading"}
    nameless = [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node["role"]["value"] in wanted
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    assert page.run("document.documentElement.lang") == "en"
    levels = page.run("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
