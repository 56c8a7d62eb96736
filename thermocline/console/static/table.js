// A table's page: the seam drawn live, what the server knows of its tail, publishes, freshness, columns, bad records.

import { get, poll } from "./api.js";
import { button, el, keyed, problem, put, say, write } from "./dom.js";
import { ago, bytes, clock, count, headroom, identifier, lag, plus, share, span, tableHash } from "./format.js";
import { lineChart } from "./chart.js";
import { Seam, partitionsOf } from "./seam.js";
import { stateMark } from "./tables.js";

const HISTORY_MS = 15 * 60_000;
const MAX_PUBLISHES = 100;
// What was seen of each table in this tab: ages of the newest row, and publishes.
const histories = new Map();

export function open(main, at) {
  const [catalog, schema, name] = at.parts;
  if (!name) return void put(main, problem(new Error("this address names no table.")));
  const table = { catalog, schema, table: name };
  const key = tableHash(table);
  const history = histories.get(key) ?? { ages: [], publishes: [], snapshot: null };
  histories.set(key, history);

  const sample = `FROM ${[catalog, schema, name].map(identifier).join(".")} LIMIT 100`;
  const seam = new Seam();
  const problems = el("div");
  const state = el("span");
  const advice = el("p", { class: "advice" });
  const facts = el("dl", { class: "facts" });
  const more = el("dl", { class: "pairs" });
  const seamNote = el("p", { class: "note", hidden: true });
  const rows = el("tbody");
  const whole = el("details", { ontoggle: redraw }, el("summary", {}, "The seam as a table"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Partitions" }, el("table", {},
    el("caption", { class: "for-readers" }, "Offsets of each partition"),
    el("thead", {}, el("tr", {}, ["Partition", "Log start", "Watermark", "Log end", "Hot offsets", "In memory", "Oldest not tiered", "Newest row"]
      .map((title) => el("th", { scope: "col", class: "number" }, title)))), rows)));
  const publishes = el("ol", { class: "publishes" });
  const freshness = el("div", { class: "chart-room" });
  const details = el("div", { class: "columns" });
  const modes = ["offsets", "time"].map((mode) => button(`In ${mode}`, () => choose(mode), { "data-mode": mode }));
  const slider = el("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Snapshot that is shown", oninput: () => travel(Number(slider.value)) });
  const moment = el("span", { class: "quiet", role: "status" });
  let last = null;
  let mode = sessionStorage.getItem("seam-mode") ?? "offsets";
  let stop = null;
  let snapshot = at.query.get("at");

  put(main,
    el("div", { class: "bar" },
      el("h1", {}, el("a", { href: "#/tables" }, "Tables"), " / ", `${catalog}.${schema}.${name}`), state,
      el("a", { class: "right", href: `#/query?sql=${encodeURIComponent(sample)}`, onclick: () => sessionStorage.setItem("run-next", sample) }, "Query it")),
    problems, advice, facts,
    el("section", { class: "panel", "aria-label": "Seam" },
      el("div", { class: "bar" }, el("h2", {}, "The seam"), modes,
        el("label", { class: "slider" }, "Snapshot", slider), moment),
      seamNote, seam.node,
      whole),
    el("div", { class: "two" },
      el("section", { class: "panel" }, el("h2", {}, "Age of the newest row, 15 minutes"), freshness),
      el("section", { class: "panel" }, el("h2", {}, "Publishes"), publishes),
      el("section", { class: "panel" }, el("h2", {}, "Binding"), more)),
    details);

  function choose(next) {
    mode = next;
    sessionStorage.setItem("seam-mode", mode);
    modes.forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.mode === mode)));
    redraw();
  }

  function redraw() {
    if (last) draw(last);
  }

  function draw(document) {
    const now = Date.now();
    const standing = document.tails[0] ?? null;
    const isClosed = standing?.state === "closed";
    put(state, standing ? stateMark(standing.state) : el("span", { class: "quiet" }, "no topic"));
    write(advice, standing?.error_text ?? standing?.advice ?? "");
    seamNote.hidden = document.seam.length > 0;
    write(seamNote, isClosed ? "A row filter holds for you here, so the seam is closed: its offsets count rows that you may not see." :
      standing ? "The table has no offsets yet." : "No topic is bound to this table: all of its rows are cold.");
    drawFacts(facts, more, document, standing);
    const partitions = partitionsOf(document);
    const published = seam.draw(partitions, snapshot ? "offsets" : mode, standing?.retention_s ? Number(standing.retention_s) : null, now);
    if (whole.open) keyed(rows, partitions, (each) => each.name, () => el("tr", {}, Array.from({ length: 8 }, () => el("td", { class: "number" }))), (row, each) => {
      [each.name, count(each.logStart), count(each.row.watermark), count(each.row.log_end), count(each.row.tail_offsets), count(each.read),
        ago(each.oldest, now), ago(each.newest, now)].forEach((text, index) => write(row.children[index], String(text)));
    });
    if (!snapshot) remember(document, standing, published, now);
  }

  function remember(document, standing, published, now) {
    const current = document.seam[0]?.snapshot_id ?? null;
    if (current && !history.publishes.some((each) => each.snapshot === current)) {
      const offsets = published.reduce((sum, each) => sum + each.watermark - each.before, 0);
      history.publishes.push({ snapshot: current, at: offsets ? now : Number(standing?.published_ms ?? now), offsets });
      if (history.publishes.length > MAX_PUBLISHES) history.publishes.shift();
      if (offsets) say(`Publish: ${count(offsets)} offsets went from hot to cold.`);
      slider.max = String(history.publishes.length);
      slider.value = slider.max;
    }
    if (standing?.newest_age_s) history.ages.push([now, Number(standing.newest_age_s)]);
    while (history.ages.length && history.ages[0][0] < now - HISTORY_MS) history.ages.shift();
    put(freshness, lineChart(history.ages, { from: now - HISTORY_MS, to: now, unit: (value) => span(value), label: "Age of the newest row", width: freshness.clientWidth }));
    keyed(publishes, [...history.publishes].reverse(), (each) => each.snapshot, (each) => el("li", {},
      el("span", { class: "mono" }, clock(each.at)), ` ${each.offsets ? `+${count(each.offsets)} offsets` : "before this page was opened"} `,
      button("show", () => travel(history.publishes.indexOf(each)), { class: "plain", "aria-label": `Show snapshot ${each.snapshot}` }),
      el("span", { class: "quiet mono block" }, each.snapshot)), () => {});
  }

  // Takes the snapshots of before this tab had the page, in the server's order; what was seen of one since stays. A rollback names one twice.
  function recall(snapshots) {
    const seen = new Map(history.publishes.map((each) => [each.snapshot, each]));
    const listed = new Map([...snapshots].reverse().map((each) => [each.snapshot_id, seen.get(each.snapshot_id) ?? { snapshot: each.snapshot_id, at: Number(each.since_ms), offsets: 0 }]));
    const newer = history.publishes.slice(1 + history.publishes.findLastIndex((each) => listed.has(each.snapshot)));
    history.publishes = [...listed.values(), ...newer];
    slider.max = String(history.publishes.length);
    const index = history.publishes.findIndex((each) => each.snapshot === snapshot);
    slider.value = index < 0 ? slider.max : String(index);
    redraw();
  }

  function travel(index) {
    const chosen = history.publishes[index];
    slider.value = String(index);
    watch(chosen?.snapshot ?? null);
  }

  function watch(at) {
    snapshot = at;
    stop?.();
    write(moment, at ? `as it was at snapshot ${at}` : "live");
    stop = poll("seam", { ...table, ...(at ? { at } : {}) }, (document) => {
      put(problems);
      if (document) last = document;
      redraw();
      // Closed, it has no numbers that move.
      if (last.tails[0]?.state === "closed") stop();
    }, (error) => {
      put(problems, problem(error));
      if (at && error.status < 500 && error.status) put(problems, problem(error), button("Back to now", () => travel(history.publishes.length)));
    });
  }

  slider.max = String(history.publishes.length);
  slider.value = slider.max;
  choose(mode);
  watch(snapshot);
  get("table", table).then((document) => {
    drawDetails(details, document);
    recall(document.snapshots);
  }, (error) => put(details, problem(error)));
  return () => stop?.();
}

function drawFacts(facts, more, document, standing) {
  const seam = document.seam[0];
  const cold = plus(document.seam.map((row) => row.watermark));
  const hot = plus(document.seam.map((row) => row.tail_offsets));
  const full = standing ? Math.max(share(standing.tail_rows, standing.max_tail_rows), share(standing.tail_bytes, standing.max_tail_bytes)) : 0;
  list(facts, [
    ["Cold offsets", seam && count(cold)],
    ["Hot offsets", seam && count(hot)],
    ["Newest row", standing?.newest_age_s && `${span(standing.newest_age_s)} old`],
    ["Lag", standing?.kafka_partition && lag(standing, standing.table_lag)],
    ["Headroom", standing?.kafka_partition && headroom(standing, standing.table_lag)],
    ["In memory", standing?.tail_bytes && `${bytes(standing.tail_bytes)}, ${Math.round(full * 100)} %`],
    ["Last publish", standing?.published_ms && ago(standing.published_ms)],
  ]);
  list(more, [
    ["Topic", seam?.topic ?? standing?.topic],
    ["Log keeps", standing?.retention_s && `${span(standing.retention_s)}${standing.is_kept_by_size === "true" ? ", and by size" : ""}`],
    ["Snapshot", seam?.snapshot_id ?? (seam ? "none yet" : null)],
    ["Its publish", standing?.published_rows && `${count(standing.published_rows)} rows, ${count(plus([standing.published_dead, standing.published_skipped]))} bad records`],
    ["Schema", seam && `id ${seam.schema_id}${seam.schema_ids ? `, ${seam.schema_ids} of writers` : ""}`],
    ["Binding", seam && (seam.tiered_shape === seam.binding_shape ? `decodes as ${seam.binding_shape}` : `${seam.binding_shape}; tiered as ${seam.tiered_shape} so far`)],
  ]);
}

function list(node, all) {
  keyed(node, all.filter(([, text]) => text), ([title]) => title, ([title]) => el("div", {}, el("dt", {}, title), el("dd")), (item, [, text]) => write(item.lastChild, String(text)));
}

function drawDetails(node, document) {
  put(node,
    document.bad.length > 0 && el("section", { class: "panel" }, el("h2", {}, "Bad records in the tail"),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Bad records" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Partition", "Offset", "Written", "Reason"].map((title) => el("th", { scope: "col" }, title)))),
        el("tbody", {}, document.bad.map((each) => el("tr", {}, el("td", {}, each.kafka_partition), el("td", {}, count(each.kafka_offset)),
          el("td", {}, each.kafka_timestamp), el("td", { class: "reason" }, each.reason))))))),
    el("section", { class: "panel" }, el("h2", {}, `${document.columns.length} columns`),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Columns" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Column", "Type", "Comment"].map((title) => el("th", { scope: "col" }, title)))),
        el("tbody", {}, document.columns.map((each) => el("tr", {}, el("th", { scope: "row", class: "mono" }, each.name),
          el("td", { class: "mono" }, each.type + (each.nullable === "NO" ? " NOT NULL" : "")), el("td", {}, each.comment ?? ""))))))));
}
