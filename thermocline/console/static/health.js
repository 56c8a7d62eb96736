// Catalogs and brokers that the server depends on, as far as this person's tables do.

import { poll } from "./api.js";
import { el, keyed, problem, put, write } from "./dom.js";
import { count, span } from "./format.js";
import { stateMark } from "./tables.js";

export function open(main, at, session) {
  const problems = el("div");
  const catalogs = el("tbody");
  const brokers = el("tbody");
  put(main, el("div", { class: "bar" }, el("h1", {}, "Health"), el("p", { class: "quiet" }, session.server, ", version ", session.version, " of the console")), problems,
    section("Catalogs", ["Catalog", "State", "Answered", "Failing for", "Tables", "In use"], catalogs),
    section("Kafka clusters", ["Cluster", "State", "Answered", "Id", "Topics"], brokers),
    el("p", { class: "quiet" }, "A tierer is known by the publishes of its tables: see the last publish on the page Tables."));
  return poll("health", null, (document) => {
    put(problems);
    if (!document) return;
    keyed(catalogs, document.catalogs, (each) => each.name, () => row(6), (node, each) => fill(node, each,
      [each.name, null, ago(each.answered_age_s), each.failing_s ? span(each.failing_s) : "–", count(each.tables), count(each.tables_in_use)]));
    keyed(brokers, document.brokers, (each) => each.cluster, () => row(5), (node, each) => fill(node, each,
      [each.cluster || "[kafka]", null, ago(each.answered_age_s), each.cluster_id ?? "–", count(each.topics)]));
  }, (error) => put(problems, problem(error)));
}

const ago = (seconds) => (seconds === null ? "never" : `${span(seconds)} ago`);
const row = (size) => el("tr", {}, Array.from({ length: size }, () => el("td")));

function fill(node, each, texts) {
  texts.forEach((text, index) => text !== null && write(node.children[index], text));
  const state = `${each.state} ${each.error ?? ""}`;
  if (node.drawn !== state) {
    node.drawn = state;
    put(node.children[1], stateMark(each.state), each.error && el("span", { class: "quiet" }, ` ${each.error}`));
  }
}

function section(title, columns, body) {
  return el("section", { class: "panel" }, el("h2", {}, title),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      el("table", {}, el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column)))), body)));
}
