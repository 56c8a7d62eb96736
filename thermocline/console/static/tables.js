// The home page: every table with its state as a word, worst first, and a search.

import { poll } from "./api.js";
import { el, keyed, problem, put, write } from "./dom.js";
import { ago, bytes, count, headroom, lag, share, span, tableHash, tableName } from "./format.js";

// As the server orders them, worst first; a sign beside each word, so that no meaning is in the colour alone.
const STATES = {
  failing: "✕", full: "✕", expiring: "!", stale: "!", stopped: "!", late: "!", unread: "…", loading: "…", closed: "⊘", ok: "✓",
};
const ORDER = Object.keys(STATES);
const SORTS = {
  state: (a, b) => rank(a) - rank(b) || byName(a, b),
  name: byName,
  lag: (a, b) => Number(b.lag ?? -1) - Number(a.lag ?? -1) || byName(a, b),
  headroom: (a, b) => Number(a.headroom_s ?? Infinity) - Number(b.headroom_s ?? Infinity) || byName(a, b),
};

const rank = (table) => (table.state ? ORDER.indexOf(table.state) : ORDER.length);

function byName(a, b) {
  return tableName(a) < tableName(b) ? -1 : 1;
}

export function stateMark(state) {
  return el("span", { class: `state ${state}` }, el("span", { "aria-hidden": "true" }, `${STATES[state] ?? "?"} `), state);
}

const remembered = { search: "", sort: "state", limit: 200 };

export function open(main) {
  let tables = null;
  const search = el("input", {
    type: "search", placeholder: "Search tables", "aria-label": "Search tables", value: remembered.search, autocomplete: "off", spellcheck: "false",
    oninput: () => { remembered.search = search.value; draw(); },
  });
  const sort = el("select", { "aria-label": "Order", onchange: () => { remembered.sort = sort.value; draw(); } },
    Object.keys(SORTS).map((name) => el("option", { value: name }, `by ${name}`)));
  sort.value = remembered.sort;
  const total = el("p", { class: "quiet", role: "status" });
  const problems = el("div");
  const list = el("tbody");
  const more = el("button", { type: "button", hidden: true, onclick: () => { remembered.limit += 1000; draw(); } });
  put(main,
    el("div", { class: "bar" }, el("h1", {}, "Tables"), search, sort, total),
    problems,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tables" },
      el("table", { class: "tables" },
        el("thead", {}, el("tr", {}, ["Table", "State", "Not tiered", "Tail in memory", "Lag", "Headroom", "Newest row", "Last publish"]
          .map((title, index) => el("th", { scope: "col", class: index > 1 ? "number" : null }, title)))),
        list)),
    more);

  function draw() {
    if (!tables) return;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = tables.filter((table) => words.every((word) => table.words.includes(word))).sort(SORTS[sort.value]);
    const bad = tables.filter((table) => table.state && !["ok", "loading", "closed", "unread"].includes(table.state)).length;
    write(total, `${count(fitting.length)} of ${count(tables.length)}; ${bad ? `${bad} need a look` : "none needs a look"}`);
    keyed(list, fitting.slice(0, remembered.limit), tableName, makeRow, drawRow);
    more.hidden = fitting.length <= remembered.limit;
    write(more, `${count(fitting.length - remembered.limit)} more`);
  }

  search.focus({ preventScroll: true });
  return poll("tables", null, (document) => {
    put(problems);
    if (document) {
      tables = document.tables;
      for (const table of tables) table.words = `${tableName(table)} ${table.topic ?? ""} ${table.state ?? "plain"} ${table.comment ?? ""}`.toLowerCase();
    }
    draw();
  }, (error) => put(problems, problem(error)));
}

function makeRow(table) {
  const cells = ["lag", "tail", "behind", "headroom", "newest", "publish"].map((name) => el("td", { class: `number ${name}` }));
  const row = el("tr", {},
    el("th", { scope: "row" }, el("a", { href: tableHash(table) }, tableName(table)), el("span", { class: "quiet block" }, table.comment ?? "")),
    el("td"), cells);
  row.drawn = {};
  return row;
}

function drawRow(row, table) {
  const state = table.state ?? (table.kind === "VIEW" ? "view" : "plain");
  const advice = table.error ?? table.advice;
  const stateCell = row.children[1];
  if (row.drawn.state !== state || row.drawn.advice !== advice) {
    Object.assign(row.drawn, { state, advice });
    put(stateCell, table.state ? stateMark(state) : el("span", { class: "quiet" }, "no topic"), advice && el("span", { class: "advice" }, advice));
  }
  const full = Math.max(share(table.tail_rows, table.max_tail_rows), share(table.tail_bytes, table.max_tail_bytes));
  // Where nothing is said of partitions (closed, unread, failing) there are no numbers.
  const texts = Number(table.partitions) > 0 ? [
    `${count(table.lag)} offsets`,
    `${count(table.tail_rows)} rows${table.tail_bytes === null ? "" : `, ${bytes(table.tail_bytes)} · ${Math.round(full * 100)} % of budget`}`,
    lag(table, table.lag),
    headroom(table, table.lag),
    table.newest_age_s === null ? "–" : `${span(table.newest_age_s)} old`,
    ago(table.published_ms),
  ] : ["–", "–", "–", "–", "–", "–"];
  texts.forEach((text, index) => write(row.children[index + 2], text));
}
