// The editor: a text area with completion below it and, behind it, the same text with the mark of an error.

import { el, put } from "./dom.js";
import { identifier } from "./format.js";

const WORDS = ("SELECT FROM WHERE GROUP BY ORDER LIMIT HAVING JOIN LEFT ON USING AS AND OR NOT IN IS NULL BETWEEN LIKE DISTINCT CASE WHEN THEN ELSE END " +
  "WITH UNION ALL COUNT SUM MIN MAX AVG INTERVAL TIMESTAMP DATE CAST COALESCE DATE_TRUNC NOW AT VERSION EXPLAIN DESC").split(" ");
const MAX_CHOICES = 8;

// Where the sentence of an error points to in the text: [start, stop], or null.
export function errorSpan(sql, sentence) {
  if (/at end of input/.test(sentence)) return [Math.max(0, sql.trimEnd().length - 1), sql.trimEnd().length];
  const line = /LINE (\d+): ?([^\n]*)\n( *)\^/.exec(sentence);
  if (line) {
    const [, number, piece, spaces] = line;
    const column = spaces.length - `LINE ${number}: `.length;
    const row = sql.split("\n")[number - 1] ?? "";
    const from = row.indexOf(piece.replace(/^\.\.\.|\.\.\.$/g, ""));
    const start = sql.split("\n").slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0) + Math.max(0, from) + column - (piece.startsWith("...") ? 3 : 0);
    if (start >= 0 && start < sql.length) return [start, start + (/^\w+/.exec(sql.slice(start))?.[0].length ?? 1)];
  }
  // The names that the sentence quotes, then its words with a dot in them: the first that the text has.
  const quoted = [...sentence.matchAll(/"([^"]+)"/g)].map((match) => match[1]);
  const dotted = [...sentence.matchAll(/[\w$]+(?:\.[\w$"]+)+/g)].map((match) => match[0]);
  const called = [...sentence.matchAll(/\b(?:function|Function)[^"]*?\b(\w+)\s*\(/g)].map((match) => match[1]);
  for (const name of [...quoted, ...called, ...dotted, ...dotted.map((each) => each.split(".").at(-1))]) {
    const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const match = new RegExp(`(?<![\\w$])${escaped}(?![\\w$])`, "i").exec(sql);
    if (match) return [match.index, match.index + match[0].length];
  }
  return null;
}

export class Editor {
  constructor({ run }) {
    this.run = run;
    this.names = WORDS.map((word) => ({ text: word, kind: "" }));
    this.choices = [];
    this.chosen = -1;
    this.back = el("pre", { class: "editor-back", "aria-hidden": "true" });
    this.list = el("ul", { class: "choices", role: "listbox", id: "choices", "aria-label": "Completions", hidden: true });
    this.area = el("textarea", {
      id: "sql", rows: 6, spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "soft", "aria-label": "SQL; Control and Enter runs it, Control and Space completes",
      "aria-controls": "choices", "aria-autocomplete": "list", placeholder: "SELECT count(*) FROM lake.net.flows",
      oninput: () => { this.mark(null); this.offer(false); },
      onkeydown: (event) => this.press(event),
      onscroll: () => { this.back.scrollTop = this.area.scrollTop; },
      onblur: () => setTimeout(() => this.close(), 150),
      onclick: () => this.close(),
    });
    this.node = el("div", { class: "editor" }, el("div", { class: "layers" }, this.back, this.area), this.list);
  }

  get text() { return this.area.value; }
  set text(value) { this.area.value = value; this.mark(null); }
  focus() { this.area.focus({ preventScroll: true }); }

  mark(sentence) {
    const span = sentence ? errorSpan(this.text, sentence) : null;
    put(this.back);
    this.area.setAttribute("aria-invalid", String(Boolean(sentence)));
    if (!span) return;
    put(this.back, this.text.slice(0, span[0]), el("mark", {}, this.text.slice(...span) || " "), this.text.slice(span[1]), "\n");
    this.back.scrollTop = this.area.scrollTop;
    this.area.setSelectionRange(...span);
  }

  // `rows` are [catalog, schema, table, column, type].
  complete(rows) {
    const tables = new Set();
    const columns = new Map();
    for (const [catalog, schema, table, column, type] of rows) {
      tables.add([catalog, schema, table].map(identifier).join("."));
      columns.set(identifier(column), type);
    }
    this.names = [...[...tables].map((text) => ({ text, kind: "table" })), ...[...columns].map(([text, kind]) => ({ text, kind })), ...this.names];
  }

  word() {
    const end = this.area.selectionStart;
    const [word] = /[\w."$]*$/.exec(this.text.slice(0, end));
    return { word, start: end - word.length, end };
  }

  offer(isWanted) {
    const { word } = this.word();
    if (!isWanted && word.length < 2) return this.close();
    const lower = word.toLowerCase();
    const fits = (name) => name.text.toLowerCase().startsWith(lower) || (name.kind === "table" && name.text.toLowerCase().includes(`.${lower}`));
    this.choices = this.names.filter((name) => fits(name) && name.text !== word).slice(0, MAX_CHOICES);
    this.chosen = -1;
    this.draw();
  }

  draw() {
    this.list.hidden = this.choices.length === 0;
    put(this.list, this.choices.map((choice, index) => el("li", {
      role: "option", id: `choice-${index}`, "aria-selected": String(index === this.chosen), onpointerdown: (event) => { event.preventDefault(); this.take(index); },
    }, el("span", { class: "mono" }, choice.text), el("span", { class: "quiet" }, choice.kind))));
    if (this.chosen >= 0) this.area.setAttribute("aria-activedescendant", `choice-${this.chosen}`);
    else this.area.removeAttribute("aria-activedescendant");
  }

  close() {
    this.choices = [];
    this.chosen = -1;
    this.draw();
  }

  take(index) {
    const { start, end } = this.word();
    this.area.setRangeText(this.choices[index].text, start, end, "end");
    this.close();
    this.focus();
  }

  press(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.close();
      this.run();
    } else if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.offer(true);
    } else if (this.choices.length) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        this.chosen = (this.chosen + step + this.choices.length) % this.choices.length;
        this.draw();
      } else if (event.key === "Tab" || (event.key === "Enter" && this.chosen >= 0)) {
        event.preventDefault();
        this.take(Math.max(0, this.chosen));
      } else if (event.key === "Escape") {
        event.preventDefault();
        this.close();
      }
    }
  }
}
