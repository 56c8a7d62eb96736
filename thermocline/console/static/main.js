// Login, navigation, and which page is open.

import { get, post } from "./api.js";
import { button, el, problem, put } from "./dom.js";

const PAGES = {
  tables: () => import("./tables.js"),
  table: () => import("./table.js"),
  query: () => import("./query.js"),
  running: () => import("./running.js"),
  health: () => import("./health.js"),
};
const MENU = [["tables", "Tables"], ["query", "Query"], ["running", "Running"], ["health", "Health"]];
const main = document.getElementById("main");
const head = document.getElementById("top");
let session = null;
let leave = null;
let visits = 0;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  const name = Object.hasOwn(PAGES, parts[0]) ? parts[0] : "tables";
  return { name, parts: parts.slice(1), query: new URLSearchParams(query ?? "") };
}

async function open() {
  if (location.hash === "#main") return;
  if (!session) return;
  const visit = ++visits;
  const at = address();
  leave?.();
  leave = null;
  drawHead(at.name);
  document.title = `${at.name === "table" ? at.parts.join(".") : MENU.find(([name]) => name === at.name)[1]} · Thermocline`;
  try {
    const page = await PAGES[at.name]();
    if (visit !== visits) return;
    put(main);
    leave = page.open(main, at, session) ?? null;
  } catch (error) {
    put(main, problem(error));
  }
}

function drawHead(current) {
  const here = current === "table" ? "tables" : current;
  put(head,
    el("a", { class: "brand", href: "#/tables" }, el("span", { class: "mark", "aria-hidden": "true" }), "Thermocline"),
    session && el("nav", { "aria-label": "Pages" }, MENU.map(([name, title]) =>
      el("a", { href: `#/${name}`, "aria-current": name === here ? "page" : null }, title))),
    session && el("div", { class: "who" },
      el("span", { class: "quiet", title: session.server }, session.name || "no login"),
      button("Log out", logOut, { class: "plain" })));
}

// Forgets what this tab has of a person, drafts and pictures too: the next may be another one.
function startAgain(key, value) {
  leave?.();
  leave = null;
  sessionStorage.clear();
  sessionStorage.setItem(key, value);
  history.replaceState(null, "", "/");
  location.reload();
}

async function logOut() {
  try {
    await post("logout");
  } finally {
    startAgain("logged-out", "1");
  }
}

async function begin() {
  session = await get("session");
  if ((sessionStorage.getItem("user") ?? session.name) !== session.name) return startAgain("user", session.name);
  sessionStorage.setItem("user", session.name);
  sessionStorage.removeItem("logged-out");
  await open();
}

// Whether it worked; else `errors` says why not.
async function logIn(credentials, errors) {
  try {
    await post("login", credentials);
    await begin();
    main.focus({ preventScroll: true });
    return true;
  } catch (error) {
    put(errors, problem(error));
    return false;
  }
}

// Goes to the identity provider, which sends the browser back to the first page.
async function leaveForProvider(errors) {
  try {
    const { address } = await post("login/provider");
    sessionStorage.setItem("hash", location.hash);
    location.assign(address);
  } catch (error) {
    put(errors, problem(error));
  }
}

// What the provider sent the browser back with, which stays in no history.
function returned() {
  const answer = new URLSearchParams(location.search);
  if (!answer.has("code") && !answer.has("error")) return null;
  history.replaceState(null, "", `/${sessionStorage.getItem("hash") ?? ""}`);
  sessionStorage.removeItem("hash");
  return answer;
}

// `answer` is what an identity provider sent the browser back with.
async function drawLogin(sentence, answer) {
  drawHead("login");
  document.title = "Log in · Thermocline";
  const errors = el("div", {}, sentence ? el("p", { class: "note" }, sentence) : null);
  if (answer?.has("code")) {
    if (await logIn({ code: answer.get("code"), state: answer.get("state") }, errors)) return;
  } else if (answer) {
    // Anyone can write an address: its words alone, of RFC 6749, 4.1.2.1, are shown.
    const [reason] = /^[a-z_]{1,40}$/.exec(answer.get("error")) ?? ["no reason"];
    put(errors, problem(new Error(`the identity provider refuses the login: ${reason}.`)));
  }
  let server = { is_open: false, server: "", provider: null };
  try {
    server = await get("open");
  } catch (error) {
    put(errors, problem(error));
  }
  if (server.is_open && !sentence && !answer && !sessionStorage.getItem("logged-out") && (await logIn({}, errors))) return;
  const field = (label, name, type, complete) =>
    el("label", {}, label, el("input", { name, type, autocomplete: complete, autocapitalize: "none", spellcheck: "false" }));
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    event.target.querySelectorAll("input[type=password]").forEach((input) => (input.value = ""));
    logIn(values, errors);
  };
  put(main, el("section", { class: "login" },
    el("h1", {}, "Log in"),
    el("p", { class: "quiet" }, "As to any client of ", el("code", {}, server.server || "the server"), "."),
    errors,
    server.provider && button(`Log in at ${server.provider}`, () => leaveForProvider(errors), { class: "main provider" }),
    el("form", { onsubmit: submit },
      field("User", "user", "text", "username"),
      field("Password", "password", "password", "current-password"),
      el("button", { class: "main" }, "Log in")),
    el("form", { onsubmit: submit },
      field("Or a bearer token, as of an identity provider", "token", "password", "off"),
      el("button", {}, "Log in with the token")),
    server.is_open && button("Go on without a login", () => logIn({}, errors))));
  main.querySelector(server.provider ? ".provider" : "input").focus();
}

window.addEventListener("hashchange", open);
window.addEventListener("login-over", () => {
  if (!session) return;
  session = null;
  leave?.();
  leave = null;
  drawLogin("Your login is over: log in again, and the page goes on where it was.");
});

const answer = returned();
try {
  await begin();
} catch (error) {
  if (error.status === 401) await drawLogin("", answer);
  else put(main, problem(error));
}
