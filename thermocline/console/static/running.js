// What runs now on the server, one's own or, for an administrator, everybody's; each can be cancelled.

import { poll, post } from "./api.js";
import { button, el, keyed, problem, put, say, write } from "./dom.js";
import { ago, bytes, clock, count, span } from "./format.js";

const WAITS = { slot: "waits for a slot", tail: "waits for its tail", client: "its client does not read" };

export function open(main, at, session) {
  const problems = el("div");
  const status = el("p", { class: "quiet", role: "status" });
  const running = el("tbody");
  const ended = el("tbody");
  const sessions = el("tbody");
  put(main,
    el("div", { class: "bar" }, el("h1", {}, "Running"), status), problems,
    session.name ? null : el("p", { class: "note" }, "Without a login the server tells each connection of its own statements only, and the page Query has others than this page."),
    section("Statements", ["State", "User", "For", "Sent", "Tables", "Statement", ""], running),
    section("Ended in the last 15 minutes", ["Outcome", "User", "Began", "Took", "Sent", "Tables", "Statement"], ended),
    section("Sessions", ["User", "Opened", "Idle", "Calls", "Catalog and schema", "Settings"], sessions));

  async function cancel(id, node) {
    node.disabled = true;
    try {
      await post("running/cancel", { statement: id });
      say("Cancelled.");
    } catch (error) {
      put(problems, problem(error));
    }
  }

  return poll("running", null, (document) => {
    put(problems);
    if (!document) return;
    const now = document.statements.filter((each) => each.state !== "ended");
    write(status, `${count(now.length)} running, ${count(document.sessions.length)} ${document.sessions.length === 1 ? "session" : "sessions"}`);
    keyed(running, now, (each) => each.id, (each) => {
      const row = cells(7);
      row.lastChild.append(button("Cancel", (event) => cancel(each.id, event.target), { "aria-label": `Cancel statement ${each.id}` }));
      return row;
    }, (row, each) => fill(row, [each.waits_for ? `${each.state}: ${WAITS[each.waits_for] ?? each.waits_for}` : each.state, each.user ?? "anonymous",
      span(each.elapsed_s), `${count(each.rows)} rows, ${bytes(each.bytes)}`, names(each), statement(each)]));
    keyed(ended, document.statements.filter((each) => each.state === "ended"), (each) => each.id, () => cells(7), (row, each) =>
      fill(row, [each.outcome === "ok" ? "✓ ok" : `✕ ${each.outcome}`, each.user ?? "anonymous", clock(each.started_ms), span(each.elapsed_s),
        `${count(each.rows)} rows, ${bytes(each.bytes)}`, names(each), statement(each)]));
    keyed(sessions, document.sessions, (each) => each.id, () => cells(6), (row, each) =>
      fill(row, [`${each.user ?? "anonymous"}${each.is_own === "true" ? " (this one)" : ""}`, ago(each.opened_ms), span(each.idle_s), count(each.calls),
        [each.catalog, each.schema].filter(Boolean).join("."), [each.freshness, each.profile].filter(Boolean).join(", ")]));
  }, (error) => put(problems, problem(error)));
}

const cells = (size) => el("tr", {}, Array.from({ length: size }, () => el("td")));

function fill(row, texts) {
  texts.forEach((text, index) => write(row.children[index], text));
}

const names = (each) => (each.tables ?? "").replace(/^\[|\]$/g, "").replaceAll('"', "");

// The text is there where the server audits texts; else its digest, as in the audit log.
const statement = (each) => each.sql?.slice(0, 300) ?? (each.sha256 ? `sha256 ${each.sha256.slice(0, 16)}…` : "");

function section(title, columns, body) {
  return el("section", { class: "panel" }, el("h2", {}, title),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      el("table", {}, el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column || el("span", { class: "for-readers" }, "Action"))))), body)));
}
