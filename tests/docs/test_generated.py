"""Pages that are written from the configuration are current, and pages agree with each other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from analysis import artifact
from analysis.registry import artefacts
from experiments.composing import config_reference
from experiments.composing.command_line import _keys
from experiments.composing.help import text as help_text

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "results" / "README.md"]
SOME = ["fig3_schedules", "fig8_memory_pp", "table6_ablation", "fig11_hyperparameters"]


def test_the_configuration_reference_is_current() -> None:
    hint = "python -m experiments.composing.config_reference writes it"
    assert config_reference.FILE.read_text() == config_reference.text(), hint


def test_the_configuration_reference_names_every_key() -> None:
    page = config_reference.FILE.read_text()
    parents = {"experiment", "method", "backend", "data", "wandb"}
    assert [key for key in _keys() if key not in parents and f"`{key}`" not in page] == []


def rows_of_page() -> dict[str, str]:
    page = artifact.FILE.read_text()
    table = page.partition(artifact.BEGIN)[2].partition(artifact.END)[0]
    return {found[1]: found[0] for found in re.finditer(r"^\| `(\w+)` \|.*$", table, re.MULTILINE)}


def test_the_artefact_table_has_every_table_and_figure_that_has_cells() -> None:
    experiments = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}
    assert list(rows_of_page()) == [id for id in artefacts() if id in experiments]


def test_rows_of_the_artefact_table_are_current() -> None:
    found = {row.id: artifact.line(row) for row in artifact.rows(SOME)}
    assert found == {id: rows_of_page()[id] for id in SOME}, "python -m analysis artifact writes it"


def test_the_cluster_tier_runs_what_the_table_says_needs_gpus() -> None:
    said = subprocess.run(
        ["make", "-n", "reproduce-cluster"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    loop = re.search(r"for name in ([\w ]+);", said)
    assert loop is not None
    assert set(loop[1].split()) == {id for id, row in rows_of_page().items() if "| none |" not in row}


@pytest.mark.slow
def test_all_of_the_artefact_table_is_current() -> None:
    page = artifact.FILE.read_text()
    assert artifact.updated(page, artifact.table(artifact.rows())) == page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        if "://" in name:
            continue
        target = (page.parent / name) if name else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name}: {link}"


def test_help_names_the_makefile_independent_commands_and_every_experiment() -> None:
    said = help_text(ROOT / "conf")
    for path in (ROOT / "conf" / "experiment").glob("*.yaml"):
        assert path.stem in said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_a_place_of_the_machine_it_was_written_on(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(?:work|home|root|tmp)/", page.read_text())


def test_both_readmes_have_the_same_commands_and_numbers_of_sections() -> None:
    from blocks import blocks

    english, chinese = ROOT / "README.md", ROOT / "README.zh.md"

    def commands(page: Path) -> list[str]:
        found = [command for block in blocks(page) for command in block.commands]
        return [re.sub(r"\s+#.*", "", command) for command in found]

    assert commands(english) == commands(chinese)
    headings = [re.findall(r"^(#+) ", page.read_text(), re.MULTILINE) for page in (english, chinese)]
    assert headings[0] == headings[1]
    links = [re.findall(r"\]\(([^)]+)\)", page.read_text()) for page in (english, chinese)]
    assert sorted(links[0]) == sorted(links[1])


@pytest.mark.parametrize("recipe", ["Dockerfile", "bitpipe.def"])
def test_containers_install_as_the_gate_does(recipe: str) -> None:
    def install(path: Path) -> list[str]:
        return re.findall(r"make install EXTRAS=\S+", path.read_text())

    assert install(ROOT / "container" / recipe) == install(ROOT / ".ci" / "run") != []


def test_the_citation_and_the_changelog_name_this_version() -> None:
    import tomllib

    import yaml

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == version
    assert citation["license"] == "Apache-2.0"
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_worked_example_of_a_method_is_the_method_itself() -> None:
    page = (ROOT / "docs" / "extend.md").read_text()
    assert f"```python\n{(ROOT / 'bitpipe/schedule/methods/zb_h1.py').read_text()}```" in page
    assert f"```yaml\n{(ROOT / 'conf/method/zb_h1.yaml').read_text()}```" in page
