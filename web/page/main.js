// The page's address after # names what is shown: #/ (overview), #/jobs/42, #/compare/1,2, #/hosts,
// #/new, #/new/42 (the spec of job 42), #/new/42@300 (a fork of its step 300). A page is loaded when it is opened.
import {onConnection, takeKey} from "./service.js";
import {message} from "./text.js";

const content = document.getElementById("content"), theme = document.getElementById("theme");
let leave = null, shown = 0;

const pages = [
  [/^#\/jobs\/(\d+)$/, "overview", async () => (await import("./job.js")).showJob],
  [/^#\/compare(?:\/([\d,]*))?$/, "compare", async () => (await import("./compare.js")).showCompare],
  [/^#\/hosts$/, "hosts", async () => (await import("./hosts.js")).showHosts],
  [/^#\/new(?:\/(\d+(?:@\d+)?))?$/, "new", async () => (await import("./new.js")).showNew],
  [/.*/, "overview", async () => (await import("./overview.js")).showOverview],
];

async function show() {
  const number = ++shown, [pattern, name, load] = pages.find(([p]) => p.test(location.hash));
  leave?.();
  leave = null;
  content.replaceChildren();
  for (const link of document.querySelectorAll("nav a"))
    if (link.dataset.page === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  try {
    const open = await load();
    if (number === shown) leave = open(content, (location.hash.match(pattern) || [])[1] || "");
  } catch (e) {
    content.replaceChildren(message("A file of this page cannot be loaded: run `trainyard dashboard` again, then load the page again."));
    throw e;
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function themeShow() { theme.textContent = isDark() ? "Light" : "Dark"; theme.title = `Use the ${isDark() ? "light" : "dark"} theme`; }

theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  themeShow();
  show(); // charts have the colours of the theme
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { themeShow(); show(); });
const chosen = localStorage.getItem("theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
themeShow();

const KEYS = [[["g", "o"], "Overview"], [["g", "c"], "Compare"], [["g", "h"], "Hosts"], [["g", "n"], "New job"], [["/"], "Find"], [["t"], "Other theme"], [["?"], "This list"],
  [["←", "→"], "In a chart: move the cursor; with Shift by 20 points"], [["+", "-", "0"], "In a chart: zoom, and show all"]];
const GO = {o: "#/", c: "#/compare", h: "#/hosts", n: "#/new"};
let before = "";

const showKeys = async () => (await import("./actions.js")).showKeys(KEYS);
document.getElementById("keys").addEventListener("click", showKeys);
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea, dialog")) return;
  const last = before;
  before = e.key;
  if (last === "g" && GO[e.key]) location.hash = GO[e.key];
  else if (e.key === "/") { e.preventDefault(); document.querySelector("main input[type=search], #search")?.focus(); }
  else if (e.key === "t") theme.click();
  else if (e.key === "?") showKeys();
});

takeKey();
onConnection((sentence) => { document.getElementById("connection").textContent = sentence; });
window.addEventListener("hashchange", () => { takeKey(); show(); content.focus(); });
show();
