// Numbers as people read them. Integers come as texts, since a browser's own numbers end at 2^53.

export function count(text) {
  if (text === null || text === undefined) return "–";
  const digits = String(text);
  return /^-?\d+$/.test(digits) ? digits.replace(/\B(?=(\d{3})+$)/g, ",") : digits;
}

export function plus(texts) {
  let sum = 0n;
  for (const text of texts) if (text !== null && text !== undefined) sum += BigInt(text);
  return sum;
}

export function bytes(text) {
  if (text === null || text === undefined) return "–";
  let size = Number(text);
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (size < 1000) return `${unit === "B" || size >= 100 ? Math.round(size) : size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return `${size.toFixed(1)} TB`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(Number(seconds))) return "–";
  const value = Math.max(0, Number(seconds));
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${Math.round(value / 86400)} days`;
}

export function ago(milliseconds, now = Date.now()) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  return `${span((now - Number(milliseconds)) / 1000)} ago`;
}

// How long the oldest record waits that is not tiered. Unknown, or closed to who looks: "–".
export function lag(table, offsets) {
  return offsets === "0" ? "none" : span(table.lag_s);
}

// How long Kafka still keeps that record, or would keep one that came now; as `thermocline status` says it.
export function headroom(table, offsets) {
  if (table.retention_s === null) return table.is_kept_by_size === "true" ? "by size" : "no limit";
  if (table.headroom_s === null && offsets !== "0") return "–";
  return `${span(table.headroom_s ?? table.retention_s)}${table.is_kept_by_size === "true" ? " or by size" : ""}`;
}

// With its day, unless that is today.
export function clock(milliseconds) {
  const time = new Date(Number(milliseconds));
  const isToday = time.toDateString() === new Date().toDateString();
  return time.toLocaleString([], { timeStyle: "medium", hour12: false, ...(isToday ? {} : { dateStyle: "short" }) });
}

export function share(part, whole) {
  return Number(whole) > 0 ? Number(part) / Number(whole) : 0;
}

export function tableHash(table) {
  return `#/table/${[table.catalog, table.schema, table.table].map(encodeURIComponent).join("/")}`;
}

export function tableName(table) {
  return [table.catalog, table.schema, table.table].join(".");
}

const PLAIN = /^[a-z_][a-z0-9_]*$/;

// A name as SQL takes it: quoted where it is more than a plain word.
export function identifier(name) {
  return PLAIN.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}
