"""What a person does with the console, in Debian's Chromium: run by a Python that has Playwright, it prints what it met as JSON.

``python console_program.py NAME ADDRESS [KEY=VALUE…]``; with the name ``picture`` it writes the picture of the documentation.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from importlib import resources
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, sync_playwright

WAIT_MS = 60_000
TABLE = "#/table/lake/edr/flows"
#: Markup in all the ways that pages have been made to run it; here each must stay a text.
_CALL = "window.pwned=1"
HOSTILE = [
    form.replace("CALL", _CALL)
    for form in (
        "<script>CALL</script>", "<ScRiPt >CALL</sCrIpT>", "<img src=x onerror=CALL>", "<svg onload=CALL>", "<svg><script>CALL</script></svg>",
        "<iframe srcdoc='<script>parent.CALL</script>'>", "<body onload=CALL>", "<details open ontoggle=CALL>", "<video><source onerror=CALL>",
        "<input autofocus onfocus=CALL>", "<a href=javascript:CALL>x</a>", "javascript:CALL", "'><script>CALL</script>", "\"><img src=x onerror=CALL>",
        "</textarea><script>CALL</script>", "</title><script>CALL</script>", "</style><script>CALL</script>", "<!--><script>CALL</script>-->",
        "<math><mtext><img src=x onerror=CALL></mtext></math>", "<template><script>CALL</script></template>", "${CALL}", "{{CALL}}", "`${CALL}`",
        "<object data=javascript:CALL>", "<embed src=javascript:CALL>", "<link rel=stylesheet href=javascript:CALL>", "<meta http-equiv=refresh content='0;url=javascript:CALL'>",
        "<base href=javascript:CALL//>", "<form action=javascript:CALL><button>x</button></form>", "<marquee onstart=CALL>", "<p style=animation:x onanimationstart=CALL>",
        "&lt;script&gt;CALL&lt;/script&gt;", "\\u003cscript\\u003eCALL\\u003c/script\\u003e", "<img src='x' onerror='CALL'", "<x onclick=CALL>", "<img/src=x/onerror=CALL>",
        "<img src=x:x onerror=CALL//", "<svg/onload=CALL//", "<select autofocus onfocus=CALL>", "<audio src onerror=CALL>", "<noscript><p title='</noscript><img src=x onerror=CALL>'>",
        "]]><script>CALL</script>", "%3Cscript%3ECALL%3C/script%3E", "<a href='data:text/html,<script>CALL</script>'>x</a>", "<keygen autofocus onfocus=CALL>",
        "<style>@import 'javascript:CALL'</style>", "<div draggable ondragstart=CALL>", "constructor.constructor('CALL')()", "__proto__[x]=CALL", "\u202e<script>CALL</script>",
    )
]  # fmt: skip


@contextlib.contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """Yield a page of a new visitor, and what went wrong in it."""
    faults: list[str] = []
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))

    def close(dialog: Dialog) -> None:
        faults.append("a dialog")
        dialog.dismiss()

    def note(message: ConsoleMessage) -> None:
        # What a page shows as a problem, Chromium notes as a failed request besides.
        if message.type == "error" and "the server responded" not in message.text:
            faults.append(message.text)

    page.on("dialog", close)
    page.on("console", note)
    yield page, faults
    context.close()


def until(page: Page, expression: str, timeout_s: float = 60.0) -> None:
    """Wait for it from here: Playwright's own wait is an ``eval`` in the page, which the console's policy refuses."""
    deadline_s = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        if time.monotonic() > deadline_s:
            raise TimeoutError(expression)
        time.sleep(0.05)


def enter(page: Page, address: str, more: str = "") -> None:
    page.goto(address)
    page.wait_for_selector("nav a")
    if more:
        page.goto(address + more)


def run_sql(page: Page, sql: str) -> None:
    page.fill("#sql", sql)
    page.keyboard.press("Control+Enter")
    until(page, "document.querySelector('button.main').disabled === false")


def seam(page: Page, address: str) -> dict[str, Any]:
    """Watch the seam until a publish moves it; return the numbers of the page after it, with their snapshot."""
    answers: list[dict[str, Any]] = []

    def note(response: Any) -> None:
        if "/api/seam" in response.url and response.status == 200:
            with contextlib.suppress(Exception):
                answers.append(response.json())

    page.on("response", note)
    enter(page, address, TABLE)
    page.wait_for_selector(".seam-row .line")
    page.wait_for_selector("h2:has-text('columns')")
    page.click("summary:has-text('The seam as a table')")
    first = page.locator(".publishes li").count()
    before = page.locator(".seam-rows .of-cold").all_inner_texts()
    until(page, f"document.querySelectorAll('.publishes li').length > {first}", 240)
    after = page.locator(".seam-rows .of-cold").all_inner_texts()
    table = page.locator("details tbody tr td:nth-child(3)").all_inner_texts()
    snapshot = page.locator(".publishes li .mono.block").first.inner_text()
    [answer] = [each for each in answers if each["seam"][0]["snapshot_id"] == snapshot][:1]
    # Back to the snapshot before: the slider's place is left of its end.
    page.locator(".publishes li button").nth(1).click()
    until(
        page,
        "document.querySelector('.slider + [role=status]').textContent.includes('as it was')",
    )
    until(
        page,
        f"document.querySelector('.seam-rows .of-cold').textContent === {json.dumps(before[0])}",
    )
    # And to the oldest, of before the page was opened: nothing was tiered yet.
    page.locator(".publishes li button").last.click()
    until(page, "document.querySelector('.seam-rows .of-cold').textContent === '0'")
    return {
        "snapshots": first,
        "before": before,
        "after": after,
        "table": table,
        "snapshot": snapshot,
        "seam": answer["seam"],
    }


def markup(page: Page, address: str) -> dict[str, Any]:
    """Put markup into values, names, errors, the search, the address: nothing of it may run or become an element."""
    enter(page, address, "#/query")
    quoted = [f"'{text.replace(chr(39), chr(39) * 2)}'" for text in HOSTILE]
    run_sql(page, f"SELECT * FROM (VALUES {', '.join(f'({text})' for text in quoted)}) t(v)")
    page.wait_for_selector(".grid-row >> nth=5")
    cells = page.evaluate(
        "[...document.querySelectorAll('.grid-row [role=gridcell]')].map(e => [e.children.length, e.textContent])"
    )
    for text in HOSTILE[:12]:
        run_sql(page, f'SELECT 1 AS "{text.replace(chr(34), chr(34) * 2)}"')
        run_sql(page, f'SELECT "{text.replace(chr(34), chr(34) * 2)}" FROM lake.edr.flows')
    errors = page.locator(".problem").inner_text()
    page.click("text=History of this session")
    enter(page, address, "#/tables")
    for text in HOSTILE:
        page.fill("input[type=search]", text)
    for text in HOSTILE[:6]:
        page.goto(
            address
            + "#/table/"
            + "/".join([json.dumps(text)[1:-1].replace("/", "%2F").replace("%", "%25")] * 3)
        )
        page.wait_for_selector(".problem")
    return {
        "cells": cells,
        "errors": errors,
        "pwned": page.evaluate("window.pwned ?? null"),
    }


def grid(page: Page, address: str) -> dict[str, Any]:
    """Scroll a hundred thousand rows by keys alone, look at one value, save as CSV."""
    enter(page, address, "#/query")
    run_sql(
        page,
        "SELECT range AS n, 9007199254740993 + range AS large, 'nan'::DOUBLE AS x, DATE '0001-01-01' AS d FROM range(150000)",
    )
    page.wait_for_selector(".grid-row")
    status = page.locator(".bar [role=status]").inner_text()
    page.focus(".grid")
    page.keyboard.press("Control+End")
    until(page, "document.querySelector('.grid').textContent.includes('9007199254840992')")
    last = page.locator(".here").inner_text()
    rows = page.locator(".grid-row").count()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('dialog pre').textContent.startsWith('9007')")
    value = page.locator("dialog pre").inner_text()
    page.keyboard.press("Escape")
    with page.expect_download() as saving:
        page.click("text=CSV")
    lines = saving.value.path().read_text().splitlines()
    return {
        "status": status,
        "last": last,
        "rows": rows,
        "value": value,
        "lines": len(lines),
        "line": lines[1],
    }


def cancel(page: Page, address: str) -> dict[str, Any]:
    """Cancel a statement that would run for hours; mark an error; complete a name."""
    enter(page, address, "#/query")
    page.fill("#sql", "SELECT count(*) FROM range(10000000) a, range(10000000) b")
    page.keyboard.press("Control+Enter")
    time.sleep(1.5)
    began = time.monotonic()
    page.click("text=Cancel")
    until(
        page,
        "document.querySelector('.bar [role=status]').textContent.startsWith('cancelled')",
    )
    ended_s = time.monotonic() - began
    run_sql(page, "SELECT nothing,\n  1 FROM lake.edr.flows")
    page.wait_for_selector(".editor-back mark")
    mark = page.locator(".editor-back mark").inner_text()
    page.fill("#sql", "FROM ")
    page.locator("#sql").press_sequentially("lake.edr.fl")
    page.wait_for_selector(".choices li")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    return {
        "ended_s": ended_s,
        "mark": mark,
        "text": page.input_value("#sql"),
    }


def waking(page: Page, address: str) -> dict[str, Any]:
    """Leave a page and come back three times before an answer comes: how many questions that makes."""
    enter(page, address, TABLE)
    page.wait_for_selector(".seam-row .line")
    count = page.evaluate(
        """() => {
          const { fetch } = window;
          let count = 0;
          window.fetch = (...options) => { count += 1; return fetch(...options); };
          for (let each = 0; each < 3; each += 1) document.dispatchEvent(new Event("visibilitychange"));
          window.fetch = fetch;
          return count;
        }"""
    )
    return {"questions": count}


def leaving(page: Page, address: str) -> dict[str, Any]:
    """Log out with a statement in the editor, and log in again in the same tab."""
    enter(page, address, "#/query?sql=SELECT+1")
    page.fill("#sql", "SELECT 'of the first'")
    page.click("text=Log out")
    page.click("text=Go on without a login")
    page.wait_for_selector("nav a")
    return {"hash": page.evaluate("location.hash"), "text": draft(page)}


def provider(page: Page, address: str, folder: str = ".") -> dict[str, Any]:
    """Log in at an identity provider, on the way to a page; then be sent back by it with a refusal."""
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}#/health")
    page.wait_for_selector("button.provider")
    page.screenshot(path=f"{folder}/login.png")
    page.click("button.provider")
    page.wait_for_selector("nav a")
    name = page.locator(".who span").inner_text()
    back = page.url
    page.click("text=Log out")
    page.wait_for_selector("button.provider")
    page.goto(f"{address}?error=access_denied&state=x")
    page.wait_for_selector(".problem")
    page.screenshot(path=f"{folder}/refused.png")
    refused = page.locator(".problem").inner_text()
    return {"name": name, "address": back, "refused": refused, "left": page.url}


def draft(page: Page) -> str:
    page.click("nav >> text=Query")
    page.wait_for_selector("#sql")
    return page.input_value("#sql")


def access(page: Page, address: str) -> dict[str, Any]:
    """Ask axe-core about every page, dark and light, and look whether 360 px are enough."""
    source = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    serious, widths, faults = [], {}, []
    for scheme in ("dark", "light"):
        for more in (
            "#/tables",
            TABLE,
            "#/query?sql=FROM+lake.edr.flows+LIMIT+50",
            "#/running",
            "#/health",
        ):
            with opened(page.context.browser, color_scheme=scheme) as (page, own):
                enter(page, address, more)
                if "query" in more:
                    assert (
                        page.locator(".grid-row").count() == 0
                    )  # a link runs nothing by itself
                    page.focus("#sql")
                    page.keyboard.press("Control+Enter")
                    page.wait_for_selector(".grid-row")
                time.sleep(3)
                page.evaluate(source)
                result = page.evaluate("axe.run(document)")
                serious += [
                    f"{scheme} {more}: {each['id']}: {each['nodes'][0]['html'][:160]} {each['nodes'][0]['failureSummary'][:200]}"
                    for each in result["violations"]
                    if each["impact"] in ("serious", "critical")
                ]
                page.set_viewport_size({"width": 360, "height": 740})
                time.sleep(0.5)
                widths[f"{scheme} {more}"] = page.evaluate(
                    "document.documentElement.scrollWidth"
                )
                faults += own
    return {"serious": serious, "widths": widths, "faults": faults}


def picture(page: Page, address: str, file: str = "console.png") -> dict[str, Any]:
    """Write the picture of the documentation, after a publish was seen to move the seam."""
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 1100, "height": 660})
    enter(page, address, TABLE)
    until(page, "document.querySelector('.publishes').textContent.includes('+')", 300)
    time.sleep(8)
    page.screenshot(path=file)
    return {"file": file}


def main() -> None:
    name, address, *rest = sys.argv[1:]
    options = dict(each.split("=", 1) for each in rest)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        with opened(browser) as (page, faults):
            answer = globals()[name](page, address, **options)
        print(json.dumps({**answer, "faults": faults + answer.get("faults", [])}))
        browser.close()


if __name__ == "__main__":
    main()
