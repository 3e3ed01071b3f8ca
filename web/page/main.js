// The page's address after # names what is shown: #/ (jobs), #/jobs/42, #/compare/1,2, #/hosts,
// #/new, #/new/42 (the spec of job 42), #/new/42@300 (a fork of its step 300).
import {onConnection, takeKey} from "./service.js";
import {showJobs} from "./jobs.js";
import {showJob} from "./job.js";
import {showCompare} from "./compare.js";
import {showHosts} from "./hosts.js";
import {showNew} from "./new.js";

const content = document.getElementById("content");
const theme = document.getElementById("theme");
let leave = null;

const pages = [
  [/^#\/jobs\/(\d+)$/, "jobs", showJob],
  [/^#\/compare(?:\/([\d,]*))?$/, "compare", showCompare],
  [/^#\/hosts$/, "hosts", showHosts],
  [/^#\/new(?:\/(\d+(?:@\d+)?))?$/, "new", showNew],
  [/.*/, "jobs", showJobs],
];

function show() {
  if (leave) leave();
  content.replaceChildren();
  const [pattern, name, open] = pages.find(([p]) => p.test(location.hash));
  for (const link of document.querySelectorAll("nav a"))
    link.toggleAttribute("aria-current", link.dataset.page === name);
  leave = open(content, (location.hash.match(pattern) || [])[1] || "");
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
  show();
});
const chosen = localStorage.getItem("theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
themeShow();

takeKey();
onConnection((sentence) => { document.getElementById("connection").textContent = sentence; });
window.addEventListener("hashchange", () => { takeKey(); show(); content.focus(); });
show();
