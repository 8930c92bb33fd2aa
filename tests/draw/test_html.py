"""Interactive timelines: one file, no request, data safe inside the page."""

import json
import re
import subprocess

import pytest

from bitpipe.draw.html import assets, fragment, page
from tests.draw.panels import panel


def data(html):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1])


def test_the_page_asks_for_nothing():
    html = page([panel(sync=1.0, title="BitPipe")], "BitPipe")
    assert not re.search(r"""(?:src|href)\s*=|@import|url\(|fetch\(|XMLHttpRequest|https?://""", html)


def test_hovering_tells_action_micro_batch_stage_and_times():
    events = data(fragment([panel()]))["panels"][0]["events"]
    row, lane, _, number, start, end, text = events[0]
    assert (row, lane, number, start, end) == (0, -1, "0", 0.0, 0.5)
    assert text == "F0@0d: forward, micro-batch 0, stage 0 (chunk 0), pipe d"


def test_all_events_are_there_and_syncs_have_lanes():
    drawn = panel(sync=1.5)
    shown = data(fragment([drawn]))["panels"][0]
    assert len(shown["events"]) == len(drawn.timeline.events)
    assert shown["lanes"] == max(event[1] for event in shown["events"]) + 1


def test_a_title_cannot_break_out_of_the_page():
    html = page([panel(title="</script><script>alert(1)</script>")], "a <b> title")
    assert "<script>alert" not in html
    assert "a &lt;b&gt; title" in html


def test_fragments_share_one_set_of_assets():
    assert "<style>" not in fragment([panel()])
    assert assets().count("<script>") == 1


# What a reader does: point at the first box, then zoom in; the page notes what it shows.
PROBE = """<script>
addEventListener("load", () => {
const root = document.querySelector(".bp-timeline"), canvas = root.querySelector(":scope > canvas");
const at = canvas.getBoundingClientRect(), tip = root.querySelector(".bp-tip");
const point = (x, y) => canvas.dispatchEvent(
  new PointerEvent("pointermove", { clientX: at.left + x, clientY: at.top + y }));
point(95, 45);
document.title = tip.hidden ? "no tip" : tip.textContent.split("\\n").join(" | ");
root.querySelector("button[value='+']").click();
point(95, 45);
document.title += " || " + tip.textContent.split("\\n")[0];
});
</script>"""


@pytest.mark.needs("chromium")
def test_a_browser_draws_it_and_answers_pointer_and_buttons(tmp_path):
    path = tmp_path / "page.html"
    html = page([panel(sync=1.5, title="BitPipe")], "BitPipe")
    path.write_text(html.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=900,500"]
    done = subprocess.run(
        [*command, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    first = "F0@0d: forward, micro-batch 0, stage 0 (chunk 0), pipe d"
    title = re.search(r"<title>(.*?)</title>", done.stdout)[1]
    assert title.startswith(f"{first} | device 0: 0 to 0.5, takes 0.5 || ")
    # Zoomed in around the middle, another box lies under the pointer.
    assert re.search(r"\|\| [FB]\d@\d[du]", title)
    assert first not in title.split("||")[1]
