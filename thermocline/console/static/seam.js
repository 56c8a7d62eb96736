// Draws the seam: one bar per partition, cold to the left of the seam line, hot to the right. Right is the log's end, or now.

import { el, keyed, svg, write } from "./dom.js";
import { count, span } from "./format.js";

// Bars of a table with more partitions: these many one by one, the rest in groups of like partitions.
const SINGLE = 24;
const GROUPS = 8;
// How long the scale remembers the longest tail: a publish moves the seam, not the scale.
const REMEMBER_MS = 180_000;
// Of the width: how much of it the longest tail takes.
const HOT_SHARE = 0.55;

// One row of $seam with what system.tails knows of it; offsets as numbers, which they are below 2^53.
export function partitionsOf(document) {
  const facts = new Map((document.tails ?? []).map((tail) => [tail.kafka_partition, tail]));
  return document.seam.map((row) => {
    const tail = facts.get(row.kafka_partition) ?? {};
    const watermark = Number(row.watermark);
    const end = Math.max(watermark, Number(row.log_end));
    return {
      name: row.kafka_partition, count: 1, watermark, end, hot: Number(row.tail_offsets), row,
      logStart: tail.log_start === undefined || tail.log_start === null ? null : Number(tail.log_start),
      oldest: tail.oldest_ms ? Number(tail.oldest_ms) : null, newest: tail.newest_ms ? Number(tail.newest_ms) : null,
      read: row.tail_read_offsets,
    };
  });
}

// Worst first, those beyond SINGLE in groups, each drawn as its worst partition.
export function barsOf(partitions) {
  if (partitions.length <= SINGLE + GROUPS) return partitions;
  const ordered = [...partitions].sort((a, b) => b.hot - a.hot || a.name - b.name);
  const bars = ordered.slice(0, SINGLE);
  const rest = ordered.slice(SINGLE);
  const size = Math.ceil(rest.length / GROUPS);
  for (let start = 0; start < rest.length; start += size) {
    const group = rest.slice(start, start + size);
    bars.push({ ...group[0], name: `g${start}`, count: group.length, least: group.at(-1).hot });
  }
  return bars;
}

const percent = (value) => `${Math.max(0, Math.min(100, value * 100)).toFixed(3)}%`;

export class Seam {
  constructor() {
    this.longest = [];
    this.watermarks = new Map();
    this.rows = el("div", { class: "seam-rows" });
    this.scale = el("p", { class: "seam-scale quiet" });
    this.node = el("div", { class: "seam", role: "img", "aria-label": "The seam of each partition; the same numbers are in the table below." },
      svg("svg", { class: "defs", width: 0, height: 0, "aria-hidden": "true" }, svg("defs", {},
        svg("pattern", { id: "hot", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          svg("rect", { width: 6, height: 6, class: "hot-fill" }), svg("rect", { width: 2, height: 6, class: "hot-stripe" })),
        svg("pattern", { id: "gone", width: 5, height: 5, patternUnits: "userSpaceOnUse" },
          svg("rect", { width: 5, height: 5, class: "cold-fill" }), svg("circle", { cx: 2, cy: 2, r: 1.1, class: "gone-dot" })))),
      el("div", { class: "seam-key", "aria-hidden": "true" },
        el("span", {}, el("i", { class: "key cold" }), "cold: in Iceberg"),
        el("span", {}, el("i", { class: "key gone" }), "in Iceberg only: gone from Kafka"),
        el("span", {}, el("i", { class: "key log-start" }), "Kafka's log starts"),
        el("span", {}, el("i", { class: "key seam-line" }), "seam"),
        el("span", {}, el("i", { class: "key hot" }), "hot: only in Kafka")),
      el("div", { class: "seam-row seam-head quiet", "aria-hidden": "true" }, el("span", { class: "name" }, "№"), el("span"), el("span", { class: "of-cold number" }, "watermark"), el("span", { class: "number" }, "hot")),
      this.rows, this.scale);
  }

  // `mode` is "offsets" or "time"; `retention` in seconds or null. Returns the partitions whose watermark moved.
  draw(partitions, mode, retention, now) {
    const published = [];
    for (const each of partitions) {
      const before = this.watermarks.get(each.name);
      if (before !== undefined && each.watermark > before) published.push({ ...each, before });
      this.watermarks.set(each.name, each.watermark);
    }
    const jumped = new Set(published.map((each) => each.name));
    const axis = mode === "time" ? this.timeAxis(partitions, retention, now) : this.offsetAxis(partitions, now);
    keyed(this.rows, barsOf(partitions), (bar) => bar.name, makeBar, (node, bar) => drawBar(node, bar, axis, jumped.has(bar.name)));
    write(this.scale, axis.text);
    return published;
  }

  remembered(value, mode, now) {
    this.longest = this.longest.filter((each) => each.mode === mode && now - each.at < REMEMBER_MS);
    this.longest.push({ value, mode, at: now });
    return this.longest.reduce((most, each) => Math.max(most, each.value), 0);
  }

  offsetAxis(partitions, now) {
    const longest = this.remembered(partitions.reduce((most, each) => Math.max(most, each.hot), 0), "offsets", now);
    const width = Math.max(20, longest / HOT_SHARE);
    return {
      text: `The width is ${count(Math.round(width))} offsets; the right edge is each log's end.`,
      of: (bar) => {
        const left = bar.end - width;
        const at = (offset) => (offset - left) / width;
        return { begin: at(0), start: bar.logStart === null ? null : at(bar.logStart), seam: at(bar.watermark), end: 1,
          before: bar.logStart !== null && bar.logStart < left ? `◂ log starts ${count(Math.round(left - bar.logStart))} earlier` : "" };
      },
    };
  }

  timeAxis(partitions, retention, now) {
    const ages = partitions.map((each) => (each.oldest === null ? 0 : now - each.oldest));
    const width = Math.max(60_000, this.remembered(Math.max(0, ...ages), "time", now) / HOT_SHARE);
    const kept = retention === null ? null : 1 - (retention * 1000) / width;
    return {
      text: `The width is ${span(width / 1000)}; the right edge is now.`,
      of: (bar) => {
        const end = bar.newest === null ? 1 : 1 - (now - bar.newest) / width;
        return { begin: 0, start: kept !== null && kept > 0 ? kept : null, seam: bar.oldest === null ? end : 1 - (now - bar.oldest) / width, end,
          before: kept !== null && kept <= 0 ? `◂ Kafka keeps ${span(retention)}` : "" };
      },
    };
  }
}

function makeBar() {
  const shapes = {
    cold: svg("rect", { class: "cold", y: 4, height: 16 }),
    gone: svg("rect", { class: "gone", y: 4, height: 16 }),
    hot: svg("rect", { class: "hot", y: 4, height: 16 }),
    start: svg("rect", { class: "start", y: 1, height: 22, width: 1.5 }),
    seam: svg("rect", { class: "line", y: 0, height: 24, width: 3 }),
  };
  const texts = { name: el("span", { class: "name" }), cold: el("span", { class: "of-cold number" }), hot: el("span", { class: "of-hot number" }), note: el("span", { class: "bar-note" }) };
  const node = el("div", { class: "seam-row", "aria-hidden": "true" }, texts.name,
    el("span", { class: "bar-room" }, svg("svg", { width: "100%", height: 24 }, Object.values(shapes)), texts.note), texts.cold, texts.hot);
  return Object.assign(node, { shapes, texts });
}

function drawBar(node, bar, axis, hasJumped) {
  const { shapes, texts } = node;
  const at = axis.of(bar);
  const box = (shape, from, to) => {
    const x = Math.max(0, Math.min(1, from));
    shape.setAttribute("x", percent(x));
    shape.setAttribute("width", percent(Math.max(0, Math.min(1, to) - x)));
  };
  box(shapes.cold, at.begin, at.seam);
  box(shapes.gone, at.begin, at.start === null ? at.begin : Math.min(at.start, at.seam));
  box(shapes.hot, at.seam, at.end);
  shapes.start.classList.toggle("away", at.start === null || at.start <= 0 || at.start > 1);
  shapes.start.classList.toggle("near", at.start !== null && at.seam - at.start < 0.08);
  shapes.start.setAttribute("x", percent(at.start ?? 0));
  shapes.seam.setAttribute("x", `calc(${percent(at.seam)} - 1.5px)`);
  shapes.seam.style.x = `calc(${percent(at.seam)} - 1.5px)`;
  if (hasJumped) {
    shapes.seam.classList.remove("jumped");
    void node.offsetWidth;
    shapes.seam.classList.add("jumped");
  }
  write(texts.name, bar.count > 1 ? `${count(bar.count)} more` : String(bar.name));
  write(texts.cold, bar.count > 1 ? "" : count(bar.watermark));
  write(texts.hot, bar.count > 1 ? `${count(bar.least)}–${count(bar.hot)}` : count(bar.hot));
  write(texts.note, at.before);
}
