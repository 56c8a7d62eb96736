// The grid of an answer: only the rows in view are elements; they are fetched by windows, each value as its text.

import { get } from "./api.js";
import { button, el, problem, put, write } from "./dom.js";
import { count } from "./format.js";

const ROW_PX = 28;
const WINDOW = 200;
const MAX_WINDOWS = 20;
const MARGIN_ROWS = 12;
const MIN_CHARS = 6;
const MAX_CHARS = 48;

const textOf = (cell) => (Array.isArray(cell) ? `${cell[0]}…` : cell);

export class Grid {
  constructor(id, state) {
    this.id = id;
    this.state = state;
    this.windows = new Map();
    this.elements = new Map();
    this.at = { row: 0, column: 0 };
    this.body = el("div", { class: "grid-body", role: "rowgroup" });
    this.body.style.height = `${state.rows * ROW_PX}px`;
    this.head = el("div", { class: "grid-head", role: "row" }, el("span", { role: "columnheader", class: "row-number" }, "#"),
      state.columns.map((column) => el("span", { role: "columnheader", class: column.is_number ? "number" : null, title: column.type }, column.name, el("small", {}, column.type))));
    this.table = el("div", { class: "grid", role: "grid", tabindex: "0", "aria-label": "Answer", "aria-rowcount": state.rows + 1, "aria-colcount": state.columns.length + 1,
      onscroll: () => this.draw(), onkeydown: (event) => this.press(event) }, el("div", { role: "rowgroup" }, this.head), this.body);
    this.problems = el("div");
    this.dialog = el("dialog", { class: "cell", "aria-label": "Value" });
    this.node = el("div", {}, this.problems, this.table, this.dialog);
    this.table.style.setProperty("--columns", this.widths([]));
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.table);
    this.fetch(0);
  }

  close() {
    this.watcher.disconnect();
  }

  widths(rows) {
    const sizes = this.state.columns.map((column, index) => {
      const texts = rows.slice(0, 100).map((row) => (textOf(row[index]) ?? "NULL").length);
      return Math.min(MAX_CHARS, Math.max(MIN_CHARS, column.name.length + 2, Math.min(column.type.length, 14), ...texts));
    });
    return `${Math.max(4, String(this.state.rows).length + 1)}ch ${sizes.map((size) => `${size + 2}ch`).join(" ")}`;
  }

  async fetch(number) {
    if (this.windows.has(number)) return;
    this.windows.set(number, null);
    try {
      const { rows } = await get(`statements/${this.id}/rows`, { start: number * WINDOW, stop: (number + 1) * WINDOW });
      this.windows.set(number, rows);
      if (this.windows.size > MAX_WINDOWS) this.windows.delete(this.farthest(number));
      if (number === 0 && !this.isMeasured) {
        this.isMeasured = true;
        this.table.style.setProperty("--columns", this.widths(rows));
      }
      this.draw();
    } catch (error) {
      this.windows.delete(number);
      put(this.problems, problem(error));
    }
  }

  farthest(number) {
    return [...this.windows.keys()].reduce((far, each) => (Math.abs(each - number) > Math.abs(far - number) ? each : far));
  }

  cells(row) {
    return this.windows.get(Math.floor(row / WINDOW))?.[row % WINDOW] ?? null;
  }

  draw() {
    const first = Math.max(0, Math.floor(this.table.scrollTop / ROW_PX) - MARGIN_ROWS);
    const last = Math.min(this.state.rows, Math.ceil((this.table.scrollTop + this.table.clientHeight) / ROW_PX) + MARGIN_ROWS);
    for (const [row, node] of this.elements) {
      if (row < first || row >= last) {
        node.remove();
        this.elements.delete(row);
      }
    }
    for (let row = first; row < last; row++) {
      if (!this.cells(row)) this.fetch(Math.floor(row / WINDOW));
      let node = this.elements.get(row);
      if (!node) {
        node = el("div", { class: "grid-row", role: "row", "aria-rowindex": row + 2 });
        node.style.top = `${row * ROW_PX}px`;
        this.elements.set(row, node);
        this.body.append(node);
      }
      if (!node.isFilled) this.fill(node, row);
    }
  }

  fill(node, row) {
    const values = this.cells(row);
    node.isFilled = Boolean(values);
    put(node, el("span", { class: "row-number", role: "rowheader" }, count(row + 1)), this.state.columns.map((column, index) => {
      const value = values ? values[index] : "…";
      const isHere = row === this.at.row && index === this.at.column;
      return el("span", { role: "gridcell", id: `cell-${row}-${index}`, class: [value === null ? "null" : "", column.is_number ? "number" : "", isHere ? "here" : ""].join(" "),
        onclick: () => this.go(row, index), ondblclick: () => this.show() }, value === null ? "NULL" : textOf(value));
    }));
  }

  go(row, column) {
    document.getElementById(`cell-${this.at.row}-${this.at.column}`)?.classList.remove("here");
    this.at = { row: Math.max(0, Math.min(this.state.rows - 1, row)), column: Math.max(0, Math.min(this.state.columns.length - 1, column)) };
    const top = this.at.row * ROW_PX;
    const room = this.table.clientHeight - 3 * ROW_PX;
    if (top < this.table.scrollTop) this.table.scrollTop = top;
    else if (top > this.table.scrollTop + room) this.table.scrollTop = top - room;
    this.draw();
    const cell = document.getElementById(`cell-${this.at.row}-${this.at.column}`);
    cell?.classList.add("here");
    cell?.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.table.setAttribute("aria-activedescendant", `cell-${this.at.row}-${this.at.column}`);
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.table.clientHeight / ROW_PX) - 2);
    const { row, column } = this.at;
    const to = {
      ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], PageDown: [row + page, column],
      PageUp: [row - page, column], Home: [event.ctrlKey ? 0 : row, 0], End: [event.ctrlKey ? this.state.rows - 1 : row, this.state.columns.length - 1],
    }[event.key];
    if (to) {
      event.preventDefault();
      this.go(...to);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.show();
    } else if (event.key === "c" && (event.ctrlKey || event.metaKey) && getSelection().isCollapsed) {
      navigator.clipboard?.writeText(textOf(this.cells(row)?.[column]) ?? "");
    }
  }

  async show() {
    const { row, column } = this.at;
    const value = el("pre", { class: "mono wrap", tabindex: "0" }, "…");
    put(this.dialog, el("div", { class: "bar" }, el("h2", {}, `${this.state.columns[column].name}, row ${count(row + 1)}`), button("Close", () => this.dialog.close())), value);
    this.dialog.showModal();
    try {
      const { text } = await get(`statements/${this.id}/cell`, { row, column });
      write(value, text === null ? "NULL" : text);
    } catch (error) {
      put(value, problem(error));
    }
  }
}
