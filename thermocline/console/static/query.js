// The query page: editor, running and cancelling, the answer, its cut, plan, chart, files, history and link.

import { get, post, remove } from "./api.js";
import { button, el, problem, put, say, write } from "./dom.js";
import { answerChart } from "./chart.js";
import { Editor } from "./editor.js";
import { Grid } from "./grid.js";
import { bytes, count, span } from "./format.js";

const LOOK_MS = 150;
const SLOW_LOOK_MS = 600;
const MAX_HISTORY = 100;
const CHART_POINTS = 1000;

export function open(main, at, session) {
  const key = `history ${session.name}`;
  const editor = new Editor({ run: () => run() });
  const problems = el("div");
  const standing = el("span", { class: "quiet", role: "status" });
  const results = el("div");
  const start = button("Run", () => run(), { class: "main", title: "Ctrl+Enter" });
  const stopButton = button("Cancel", () => cancel(), { disabled: true });
  const cutText = el("code", { class: "cut" });
  const lock = el("input", { type: "checkbox", id: "lock", onchange: () => drawCut() });
  const cutLine = el("p", { class: "cut-line", hidden: true },
    el("label", { for: "lock" }, lock, " Stay at this cut "), cutText);
  const history = el("div", { class: "history" });
  let running = null;
  let cut = at.query.get("cut");
  let lockedCut = cut;
  let answer = null;
  let isGone = false;

  editor.text = at.query.get("sql") ?? sessionStorage.getItem("draft") ?? "";
  lock.checked = Boolean(cut);
  put(main,
    el("div", { class: "bar" }, el("h1", {}, "Query"), start, stopButton,
      button("Plan", () => plan()), button("Copy link", copyLink), standing),
    editor.node, cutLine, problems, results,
    el("details", { class: "panel" }, el("summary", {}, "History of this session"), history));
  drawCut();
  drawHistory();
  get("names").then((document) => editor.complete(document.columns), () => {});
  editor.focus();
  // A link of someone else's fills the editor only: to run it is for who reads it.
  if (sessionStorage.getItem("run-next") === at.query.get("sql") && at.query.get("sql")) run();
  sessionStorage.removeItem("run-next");

  function drawCut() {
    lockedCut = lock.checked ? cut : null;
    cutLine.hidden = !cut;
    write(cutText, cut ? (cut.length > 48 ? `${cut.slice(0, 46)}…` : cut) : "");
    cutText.title = cut ?? "";
  }

  async function run() {
    if (running) return;
    const sql = editor.text.trim();
    if (!sql) return;
    sessionStorage.setItem("draft", editor.text);
    editor.mark(null);
    put(problems);
    const began = performance.now();
    setRunning({});
    try {
      const { id } = await post("statements", { sql, cut: lockedCut });
      running.id = id;
      if (running.isCancelled) await remove(`statements/${id}`);
      const state = await watch(id, began);
      remember({ sql, at: Date.now(), state: state.state, rows: state.rows, ms: state.elapsed_ms });
    } catch (error) {
      fail(error);
    } finally {
      setRunning(null);
    }
  }

  function setRunning(next) {
    running = next;
    start.disabled = Boolean(next);
    stopButton.disabled = !next;
  }

  async function watch(id, began) {
    for (;;) {
      const state = await get(`statements/${id}`);
      if (isGone) return state;
      write(standing, `${state.state === "running" ? "running" : sentence(state)} · ${span((state.state === "running" ? performance.now() - began : state.elapsed_ms) / 1000)}`);
      if (state.state !== "running") {
        finish(id, state);
        return state;
      }
      await new Promise((resolve) => setTimeout(resolve, performance.now() - began < 3000 ? LOOK_MS : SLOW_LOOK_MS));
    }
  }

  function sentence(state) {
    const rows = `${count(state.rows)} ${state.rows === 1 ? "row" : "rows"}`;
    if (state.state === "finished") return state.is_whole ? rows : `the first ${rows}; the console keeps no more`;
    return state.state === "cancelled" ? `cancelled after ${rows}` : "failed";
  }

  function finish(id, state) {
    say(standing.textContent);
    if (state.error) fail(state.error);
    if (state.cut && !lock.checked) cut = state.cut;
    drawCut();
    if (state.columns.length) drawAnswer(id, state);
  }

  function fail(error) {
    put(problems, problem(error));
    editor.mark(error.message);
  }

  async function cancel() {
    if (!running) return;
    running.isCancelled = true;
    write(standing, "cancelling");
    if (running.id) await remove(`statements/${running.id}`).catch(fail);
  }

  function drawAnswer(id, state) {
    answer?.close();
    const grid = (answer = new Grid(id, state));
    const room = el("div");
    const views = [["Rows", () => put(room, grid.node)], ["Chart", () => put(room, chart(id, state))]];
    const tabs = views.map(([title, show]) => button(title, () => {
      tabs.forEach((tab) => tab.setAttribute("aria-pressed", String(tab === mine(title))));
      show();
    }));
    const mine = (title) => tabs[views.findIndex(([name]) => name === title)];
    put(results, el("div", { class: "bar" }, tabs,
      el("span", { class: "files" }, "Save as ", ["csv", "parquet", "arrow"].map((form) =>
        el("a", { href: `/api/statements/${id}/file?format=${form}`, download: `answer.${form}` }, form.toUpperCase())))), room);
    tabs[0].click();
  }

  async function plan() {
    const sql = editor.text.trim();
    if (!sql) return;
    editor.mark(null);
    put(problems);
    try {
      const { sides } = await post("explain", { sql, cut: lockedCut });
      answer?.close();
      answer = null;
      put(results, drawPlan(sides));
      write(standing, "");
    } catch (error) {
      fail(error);
    }
  }

  async function copyLink() {
    const query = new URLSearchParams({ sql: editor.text.trim(), ...(lockedCut ? { cut: lockedCut } : {}) });
    const link = `${location.origin}/#/query?${query}`;
    try {
      await navigator.clipboard.writeText(link);
      write(standing, lockedCut ? "copied, with its cut" : "copied");
    } catch {
      put(problems, el("p", { class: "note" }, "Copy this link: ", el("a", { href: link, class: "wrap" }, link)));
    }
  }

  function remember(entry) {
    const entries = [entry, ...read().filter((each) => each.sql !== entry.sql)].slice(0, MAX_HISTORY);
    try {
      sessionStorage.setItem(key, JSON.stringify(entries));
    } catch {
      sessionStorage.removeItem(key);
    }
    drawHistory();
  }

  function read() {
    try {
      return JSON.parse(sessionStorage.getItem(key)) ?? [];
    } catch {
      return [];
    }
  }

  function drawHistory() {
    const entries = read();
    put(history, entries.length ? el("ol", {}, entries.map((entry) => el("li", {},
      button(entry.sql.slice(0, 300), () => { editor.text = entry.sql; editor.focus(); }, { class: "plain mono statement" }),
      el("span", { class: "quiet" }, `${entry.state}, ${count(entry.rows)} rows, ${span(entry.ms / 1000)}`))))
      : el("p", { class: "quiet" }, "No statement was run in this tab yet."));
  }

  return () => {
    isGone = true;
    sessionStorage.setItem("draft", editor.text);
    answer?.close();
  };
}

function chart(id, state) {
  const room = el("div", { class: "panel" });
  const options = () => state.columns.map((column, index) => el("option", { value: index }, column.name));
  const number = state.columns.findIndex((column) => column.is_number);
  const kind = el("select", { "aria-label": "Kind of chart", onchange: draw }, ["line", "bar"].map((name) => el("option", {}, name)));
  const x = el("select", { "aria-label": "Across", onchange: draw }, options());
  const y = el("select", { "aria-label": "Upwards", onchange: draw }, options());
  const picture = el("div");
  const note = el("p", { class: "quiet" });
  const other = state.columns.findIndex((column, index) => index !== number && !column.is_number);
  x.value = String(other >= 0 ? other : 0);
  y.value = String(number >= 0 && String(number) !== x.value ? number : state.columns.findLastIndex((column) => column.is_number));
  if (y.value === "") y.value = "0";
  put(room, el("div", { class: "bar" }, kind, el("label", {}, "across ", x), el("label", {}, "upwards ", y)), picture, note);

  async function draw() {
    try {
      const { rows, step } = await get(`statements/${id}/points`, { x: x.value, y: y.value, points: CHART_POINTS });
      put(picture, answerChart(rows, { kind: kind.value, xTitle: state.columns[x.value].name, yTitle: state.columns[y.value].name, isNumber: state.columns[x.value].is_number, width: picture.clientWidth }));
      write(note, step > 1 ? `Every ${count(step)}th row of ${count(state.rows)} is drawn.` : "");
    } catch (error) {
      put(picture, problem(error));
    }
  }

  draw();
  return room;
}

function drawPlan(sides) {
  if (!sides.length) return el("p", { class: "panel" }, "The statement reads no table.");
  const facts = (side) => [
    side.files && `${count(side.files_to_read ?? side.files)} of ${count(side.files)} files are read, ${bytes(side.bytes)} in all`,
    side.records && `${count(side.records)} records in the snapshot`,
    side.offsets && `${count(side.offsets)} offsets of ${side.partitions} partitions of topic ${side.topic}`,
    side.snapshot_id && `snapshot ${side.snapshot_id}`,
    side.contract && `freshness ${side.contract}`,
  ].filter(Boolean);
  return el("div", { class: "panel" }, el("h2", {}, "Plan: what is read of each side; nothing was run"),
    el("ul", { class: "plan" }, sides.map((side) => el("li", {},
      el("i", { class: `key ${side.side === "tail" ? "hot" : "cold"}` }), el("strong", {}, `${side.table}, ${side.side}: `), side.why,
      el("span", { class: "quiet block" }, facts(side).join(" · "))))));
}

