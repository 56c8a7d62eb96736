"""What a person does with Superset: database, dataset, chart with grain and time range, SQL Lab; by its REST API, and in a browser.

``superset_program.py api ADDRESS URI`` runs anywhere, ``superset_program.py browser ADDRESS FILE`` where Playwright is; each prints JSON.
"""

from __future__ import annotations

import http.cookiejar
import json
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

USER = PASSWORD = "admin"
#: Grains of Superset that a chart is asked for.
GRAINS = ("PT1S", "PT1M", "PT15M", "PT1H", "P1D", "P1W", "P1M", "P3M", "P1Y")
HOURS = "SELECT count(*) FROM range(10000000) a, range(10000000) b"
LAB = "SELECT dst_port, count(*) AS flows FROM edr.flows GROUP BY dst_port ORDER BY flows DESC"


class Superset:
    """Its REST API, as a user who is logged in."""

    def __init__(self, address: str) -> None:
        self._address = address
        jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        self._headers = {"content-type": "application/json", "referer": address}
        login = {"username": USER, "password": PASSWORD, "provider": "db", "refresh": True}
        token = self.ask("security/login", login)["access_token"]
        self._headers["authorization"] = f"Bearer {token}"
        self._headers["x-csrftoken"] = self.ask("security/csrf_token/")["result"]

    def ask(self, path: str, document: Any = None) -> Any:
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(f"{self._address}/api/v1/{path}", data, self._headers)
        try:
            with self._opener.open(request, timeout=120) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read().decode()[:2000]}") from None


def api(address: str, uri: str) -> dict[str, Any]:
    """Connect a database, list it, make a dataset and ask a chart of each grain, ask in SQL Lab; return what came."""
    superset = Superset(address)
    database = superset.ask(
        "database/",
        {"database_name": "Thermocline", "sqlalchemy_uri": uri, "expose_in_sqllab": True},
    )["id"]
    quoted = urllib.parse.quote("(force:!t,schema_name:edr)")
    answer = {
        "schemas": superset.ask(f"database/{database}/schemas/?q=(force:!t)")["result"],
        "tables": [
            each["value"]
            for each in superset.ask(f"database/{database}/tables/?q={quoted}")["result"]
        ],
    }
    dataset = superset.ask(
        "dataset/", {"database": database, "schema": "edr", "table_name": "flows"}
    )["id"]
    columns = superset.ask(f"dataset/{dataset}")["result"]["columns"]
    answer["times"] = [each["column_name"] for each in columns if each["is_dttm"]]
    answer["charts"] = {
        grain: superset.ask("chart/data", _chart(dataset, grain))["result"][0]["data"]
        for grain in GRAINS
    }
    lab = superset.ask(
        "sqllab/execute/",
        {
            "database_id": database,
            "sql": LAB,
            "schema": "edr",
            "runAsync": False,
            "queryLimit": 100,
        },
    )
    answer["lab"] = lab["data"]
    answer["chart"] = superset.ask(
        "chart/",
        {
            "slice_name": "Flows",
            "viz_type": "echarts_timeseries_bar",
            "datasource_id": dataset,
            "datasource_type": "table",
            "params": json.dumps(
                {
                    "viz_type": "echarts_timeseries_bar",
                    "datasource": f"{dataset}__table",
                    "x_axis": "kafka_timestamp",
                    "time_grain_sqla": "PT1S",
                    "metrics": ["count"],
                    "groupby": ["dst_port"],
                    "adhoc_filters": [],
                    "row_limit": 1000,
                    "stack": "Stack",
                }
            ),
        },
    )["id"]
    return answer


def stop(address: str, uri: str) -> dict[str, Any]:
    """Stop a statement of SQL Lab that would run for hours; return what its own call got by then."""
    superset = Superset(address)
    database = superset.ask(
        "database/",
        {"database_name": "With a user", "sqlalchemy_uri": uri, "expose_in_sqllab": True},
    )["id"]
    query = {"database_id": database, "sql": HOURS, "client_id": "stopped", "runAsync": False}
    got: list[str] = []

    def run() -> None:
        try:
            got.append(json.dumps(Superset(address).ask("sqllab/execute/", query)))
        except RuntimeError as error:
            got.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    # Refused while the statement is not there yet, or is planned.
    deadline_s = time.monotonic() + 60
    while True:
        try:
            superset.ask("query/stop", {"client_id": "stopped"})
            break
        except RuntimeError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)
    thread.join(60)
    return {"got": got}


def _chart(dataset: int, grain: str) -> dict[str, Any]:
    """Return what the Explore page sends of a chart over a day."""
    axis = {
        "timeGrain": grain,
        "columnType": "BASE_AXIS",
        "sqlExpression": "kafka_timestamp",
        "label": "kafka_timestamp",
        "expressionType": "SQL",
    }
    day = "DATEADD(DATETIME('today'), -1, day) : DATEADD(DATETIME('today'), 2, day)"
    query = {
        "columns": [axis, "protocol"],
        "metrics": ["count"],
        "granularity": "kafka_timestamp",
        "time_range": day,
        "filters": [{"col": "dst_port", "op": "IN", "val": [443, 53]}],
        "extras": {"time_grain_sqla": grain},
        "orderby": [["count", False]],
        "row_limit": 1000,
    }
    return {
        "datasource": {"id": dataset, "type": "table"},
        "force": True,
        "queries": [query],
        "result_format": "json",
        "result_type": "full",
    }


def browser(address: str, folder: str, chart: str) -> dict[str, Any]:
    """Log in by the form, open the chart and SQL Lab, run a statement there; leave a picture of each in a folder."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = chromium.new_context(viewport={"width": 1280, "height": 760}).new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{address}/login/")
        page.fill("input[name=username]:visible, #username:visible", USER)
        page.fill("input[name=password]:visible, #password:visible", PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url(lambda url: "/login" not in url)
        page.goto(f"{address}/explore/?slice_id={chart}")
        page.wait_for_selector("[data-test=chart-container] canvas, .chart-container canvas")
        time.sleep(3)
        page.screenshot(path=f"{folder}/superset-chart.png")
        page.goto(f"{address}/sqllab/?dbid=1&sql={urllib.parse.quote(LAB)}&title=Thermocline")
        page.click("button:has-text('Run'):visible")
        page.wait_for_selector("text=443")
        time.sleep(2)
        page.screenshot(path=f"{folder}/superset-lab.png")
        cells = page.locator("[role=gridcell], .ag-cell, .grid-cell, td").all_inner_texts()
        chromium.close()
    return {"cells": cells}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
