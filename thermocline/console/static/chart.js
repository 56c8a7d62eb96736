// Draws charts as SVG: a line over time, lines and bars of an answer.

import { el, svg } from "./dom.js";

const LEFT = 64;
// Of one character of a tick's text.
const CHAR = 7;
const BOTTOM = 26;
const TOP = 10;

// Round numbers from `least` to `most`, about four of them.
export function ticks(least, most) {
  const room = (most - least) / 4 || Math.abs(most) / 4 || 1;
  const size = 10 ** Math.floor(Math.log10(room));
  const step = size * ([1, 2, 5, 10].find((each) => each * size >= room) ?? 10);
  const marks = [];
  for (let mark = Math.ceil(least / step) * step; mark <= most + step / 1e6; mark += step) marks.push(Number(mark.toPrecision(12)));
  return marks;
}

function frame(label, low, high, unit, { width, height }) {
  const y = (value) => height - BOTTOM - ((value - low) / (high - low || 1)) * (height - BOTTOM - TOP);
  const lines = ticks(low, high).map((mark) => [
    svg("line", { x1: LEFT, x2: width, y1: y(mark), y2: y(mark), class: "grid-line" }),
    svg("text", { x: LEFT - 6, y: y(mark) + 4, class: "tick", "text-anchor": "end" }, unit(mark))]);
  return { y, node: svg("svg", { viewBox: `0 0 ${width} ${height}`, width, class: "chart", role: "img", "aria-label": label }, lines) };
}

// `points` are [milliseconds, value], in order; `width` in pixels, so that texts are as large as those around.
export function lineChart(points, { from, to, unit, label, width }) {
  const height = 150;
  const most = Math.max(1, ...points.map(([, value]) => value));
  const last = points.at(-1);
  const { y, node } = frame(`${label}${last ? `, now ${unit(last[1])}` : ""}`, 0, most, unit, { width, height });
  const x = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT);
  node.append(
    svg("polyline", { class: "series", points: points.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
    svg("text", { x: LEFT, y: height - 6, class: "tick" }, "15 min ago"),
    svg("text", { x: width, y: height - 6, class: "tick", "text-anchor": "end" }, "now"));
  return node;
}

// `rows` are [name or time, number], both as texts; what is no finite number leaves a gap.
export function answerChart(rows, { kind, xTitle, yTitle, isNumber, width }) {
  const height = 300;
  const all = rows.map(([x, y]) => [Array.isArray(x) ? `${x[0]}…` : x ?? "NULL", y === null ? NaN : Number(Array.isArray(y) ? y[0] : y)]);
  const values = all.map(([, value]) => value).filter(Number.isFinite);
  if (!values.length) return el("p", { class: "quiet" }, `${yTitle} has no numbers to draw.`);
  const low = Math.min(0, ...values);
  const high = Math.max(kind === "bar" ? 0 : -Infinity, ...values);
  const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 6, notation: Math.abs(value) < 1e6 ? "standard" : "compact" });
  const { y, node } = frame(`${yTitle} by ${xTitle}, ${all.length} points from ${number(low)} to ${number(high)}`, low, high === low ? low + 1 : high, number, { width, height });
  const room = width - LEFT;
  const times = all.map(([name]) => (isNumber ? Number(name) : Date.parse(String(name).replace(" ", "T"))));
  const isOrdered = kind === "line" && times.every((time, index) => Number.isFinite(time) && (index === 0 || time >= times[index - 1]));
  const range = times.at(-1) - times[0] || 1;
  const x = (index) => LEFT + (isOrdered && all.length > 1 ? ((times[index] - times[0]) / range) * room : ((index + 0.5) / all.length) * room);
  if (kind === "bar") {
    const size = Math.max(1, (room / all.length) * 0.8);
    all.forEach(([name, value], index) => Number.isFinite(value) && node.append(
      svg("rect", { class: "bar", x: x(index) - size / 2, width: size, y: Math.min(y(0), y(value)), height: Math.max(0.5, Math.abs(y(value) - y(0))) },
        svg("title", {}, `${name}: ${number(value)}`))));
  } else {
    let path = "";
    let isOpen = false;
    all.forEach(([, value], index) => {
      if (Number.isFinite(value)) path += `${isOpen ? "L" : "M"}${x(index).toFixed(1)},${y(value).toFixed(1)}`;
      isOpen = Number.isFinite(value);
    });
    node.append(svg("path", { class: "series", d: path }));
  }
  const most = Math.floor(room / 2 / CHAR);
  for (const [index, anchor] of [[0, "start"], [all.length - 1, "end"]]) {
    const name = String(all[index][0]);
    if (index > 0 || anchor === "start") node.append(svg("text", { class: "tick", x: anchor === "start" ? LEFT : width, y: height - 6, "text-anchor": anchor },
      name.length > most ? `${name.slice(0, most - 1)}…` : name));
  }
  return node;
}
