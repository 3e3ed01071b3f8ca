// A browser for the tests of the web page. Every script gets one argument, JSON: {url, chromium, folder, ...}, and prints
// its report as JSON: what a user would see, and in `errors` and `foreign` what must be empty. NODE_PATH has
// playwright-core, axe-core and lighthouse.
import {createRequire} from "node:module";

export const require = createRequire(process.env.NODE_PATH + "/");
export const given = JSON.parse(process.argv[2]);
export const report = {errors: [], foreign: []};
export const ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const {chromium} = require("playwright-core");
const origin = new URL(given.url).origin;

export const browser = await chromium.launch({executablePath: given.chromium, args: ARGUMENTS});

// Errors that a test causes are expected: the text of the console is compared with `expected`.
export async function open({theme = "light", width = 1400, height = 900, expected = null, url = given.url, script = null, ...more} = {}) {
  const context = await browser.newContext({colorScheme: theme, viewport: {width, height}, ...more});
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  page.on("console", (m) => { if (m.type() === "error" && !expected?.test(m.text())) report.errors.push(m.text()); });
  page.on("pageerror", (e) => report.errors.push(e.stack));
  page.on("request", (r) => { if (!r.url().startsWith(new URL(url).origin) && !/^(data|blob):/.test(r.url())) report.foreign.push(r.url()); });
  if (script) await page.addInitScript(script);
  await page.goto(url);
  page.to = (hash) => page.goto(`${new URL(url).origin}/${hash}`);
  return page;
}

export const call = (page, method, request) => page.evaluate(async ([m, r]) => (await (await fetch("api/" + m, {method: "POST", headers: {"X-Trainyard-Key": localStorage.getItem("key")}, body: JSON.stringify(r)})).json()), [method, request]);

export async function end() {
  await browser.close();
  console.log(JSON.stringify(report));
}

export {origin};
