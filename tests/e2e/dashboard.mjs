// node dashboard.mjs URL CHROMIUM FOLDER MARKUP-JOB JOB...: opens every page in both themes, and prints a report as JSON:
// requests to other hosts, errors, violations that axe-core finds, values that a chart shows under the cursor.
// Screenshots are written to FOLDER. NODE_PATH has playwright-core and axe-core.
import {createRequire} from "node:module";
const require = createRequire(process.env.NODE_PATH + "/");
const {chromium} = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

const [url, executablePath, folder, markup, ...jobs] = process.argv.slice(2);
const origin = new URL(url).origin, report = {foreign: [], errors: [], violations: [], hovered: []};
const browser = await chromium.launch({executablePath, args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]});

async function inspect(page, name, theme) {
  await page.screenshot({path: `${folder}/dashboard-${name}-${theme}.png`});
  const found = await page.evaluate(() => axe.run(document, {runOnly: ["wcag2a", "wcag2aa"]}));
  for (const v of found.violations) report.violations.push(`${name} ${theme}: ${v.id}: ${v.nodes[0].html}`);
}

// The legend of the first chart has the step and the value under the cursor.
async function hover(page) {
  const box = await page.locator(".u-over").first().boundingBox();
  for (const part of [0.2, 0.5, 0.9]) {
    await page.mouse.move(box.x + box.width * part, box.y + box.height / 2);
    await page.waitForFunction(() => !document.querySelector(".u-value").textContent.includes("-"));
    const [step, value] = await page.locator(".u-legend").first().locator(".u-value").allTextContents();
    report.hovered.push([step.replace(/,/g, ""), Number(value.replace(/,/g, ""))]);
  }
}

// The form: a wrong value is reported while the user types; a good one makes a job, which a button cancels.
async function submitAndCancel(page) {
  await page.fill('[data-path="train.steps"]', "-4");
  await page.waitForSelector(".message >> text=train.steps");
  await page.fill('[data-path="train.steps"]', "1000000");
  await page.fill('[data-path="name"]', "from-the-form");
  await page.waitForSelector("text=The spec is valid.");
  await page.waitForFunction(() => document.querySelector("pre.spec").textContent.includes("from-the-form"));
  await page.click("text=Submit");
  await page.waitForURL(/#\/jobs\/\d+$/);
  report.created = page.url().replace(/.*\//, "");
  await page.click("text=Cancel job");
  await page.click("dialog button[type=submit]");
  await page.waitForSelector("h1 ~ .state.CANCELLED");
}

for (const theme of ["light", "dark"]) {
  const context = await browser.newContext({colorScheme: theme, viewport: {width: 1400, height: 900}, bypassCSP: true});
  const page = await context.newPage();
  page.on("console", (m) => { if (m.type() === "error") report.errors.push(m.text()); });
  page.on("pageerror", (e) => report.errors.push(e.stack));
  page.on("request", (r) => { if (!r.url().startsWith(origin) && !r.url().startsWith("data:")) report.foreign.push(r.url()); });
  await page.addInitScript({path: axe});
  await page.goto(url);
  await page.waitForSelector("tbody tr .spark");
  await inspect(page, "jobs", theme);
  await page.goto(`${origin}/#/jobs/${jobs[0]}`);
  await page.waitForSelector(".u-over");
  await page.waitForSelector(".events li");
  await inspect(page, "job", theme);
  if (theme === "light") await hover(page);
  await page.goto(`${origin}/#/jobs/${markup}`);
  await page.waitForSelector(".log span");
  if (await page.title() === "1" || await page.locator("main img").count()) report.errors.push("markup was interpreted");
  await page.goto(`${origin}/#/compare/${jobs.join(",")}`);
  await page.waitForSelector(".u-over");
  await inspect(page, "compare", theme);
  await page.goto(`${origin}/#/hosts`);
  await page.waitForSelector(".slot");
  await inspect(page, "hosts", theme);
  await page.goto(`${origin}/#/new/${jobs[0]}`);
  await page.waitForSelector(".stack");
  await inspect(page, "new", theme);
  if (theme === "light") await submitAndCancel(page);
  await context.close();
}
await browser.close();
console.log(JSON.stringify(report));
