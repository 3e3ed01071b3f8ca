// The curves of a job: values under the cursor, axes, zoom, keys, marks, the log that follows, fork, rank-seconds.
// {job, markup}
import {given, report, open, call, end} from "./browser.mjs";

Object.assign(report, {hovered: [], axes: {}, marks: {}, zoomed: null, keys: [], fork: "", strip: {}, log: {}, bands: {}});
const page = await open();
await page.to(`#/jobs/${given.job}`);
const chart = page.locator(".chart", {hasText: "loss"}).first();
await chart.locator(".line").waitFor({state: "attached"});

const status = () => page.locator(".toolbar [role=status]").textContent();
const value = () => chart.locator("output").textContent();

// The cursor: its step and value, the line of the log, and where a fork would begin.
async function hover(part) {
  const box = await chart.locator(".plot").boundingBox();
  await page.mouse.move(box.x + 60 + (box.width - 80) * part, box.y + box.height / 2);
  await page.waitForFunction(() => document.querySelector(".toolbar [role=status]").textContent.startsWith("step"));
  return [(await status()).match(/step ([\d,]+)/)[1].replace(/,/g, ""), await value()];
}
for (const part of [0.2, 0.5, 0.9]) report.hovered.push(await hover(part));
report.log.hovered = [await page.locator(".log .at").textContent(), await page.locator(".log .at").getAttribute("title")];
report.fork = await page.locator(".toolbar a.button").getAttribute("href");
report.marks = await chart.evaluate((e) => Object.fromEntries(["checkpoint", "restart", "pause"].map((kind) => [kind, [...e.querySelectorAll(`.mark.${kind} title`)].map((t) => t.textContent)])));

for (const axis of ["Time", "Tokens", "Step"]) {
  await page.getByRole("button", {name: axis, exact: true}).click();
  report.axes[axis] = await chart.locator(".axis.x").allTextContents();
}
await page.getByLabel("Log", {exact: true}).first().check();
report.axes.log = await chart.locator(".axis:not(.x)").allTextContents();
await page.getByLabel("Log", {exact: true}).first().uncheck();
const rough = await chart.locator(".line").getAttribute("points");
await page.getByLabel("Smoothing").fill("0.9");
report.smoothed = [rough !== await chart.locator(".line").getAttribute("points"), await chart.locator("polyline").count()];
await page.getByLabel("Smoothing").fill("0");

// Dragging zooms all charts, and asks for more points of the range.
const box = await chart.locator(".plot").boundingBox();
const asked = page.waitForRequest((r) => r.postData()?.includes("until_step"));
await page.mouse.move(box.x + box.width * 0.4, box.y + 50);
await page.mouse.down();
await page.mouse.move(box.x + box.width * 0.6, box.y + 60, {steps: 4});
await page.mouse.up();
report.zoomed = JSON.parse((await asked).postData());
await page.getByRole("button", {name: "Show all"}).click();
await page.getByRole("button", {name: "Show all"}).waitFor({state: "hidden"});

// The same with keys.
await chart.locator(".plot").focus();
for (const key of ["Home", "ArrowRight", "ArrowRight", "End", "ArrowLeft"]) {
  await page.keyboard.press(key);
  report.keys.push([key, (await status()).match(/step ([\d,]+)/)[1].replace(/,/g, ""), await value()]);
}
await page.keyboard.press("+");
await page.getByRole("button", {name: "Show all"}).waitFor();
await page.keyboard.press("0");
await page.getByRole("button", {name: "Show all"}).waitFor({state: "hidden"});

// The other panes.
await page.getByRole("button", {name: "Plan", exact: true}).click();
await page.locator(".gantt").waitFor();
report.plan = await page.locator("section[aria-label=Plan] tbody tr").evaluateAll((rows) => rows.map((r) => [...r.children].map((c) => c.textContent)));
await page.getByRole("button", {name: "Spec", exact: true}).click();
report.help = await page.locator(".spec .help").count();
await page.getByRole("button", {name: "Events", exact: true}).click();
report.events = await page.locator(".events li").count();
report.strip = await page.locator(".strip .stack").first().locator("span").evaluateAll((parts) => Object.fromEntries(parts.map((p) => [p.dataset.cause, Number(p.dataset.seconds)])));
report.seconds = await call(page, "JobService/GetRankSeconds", {name: `jobs/${given.job}`});

// The keys of all pages.
await page.keyboard.press("?");
await page.locator("dialog[open] kbd").first().waitFor();
await page.keyboard.press("Escape");
for (const [key, hash] of [["h", "#/hosts"], ["n", "#/new"], ["c", "#/compare"], ["o", "#/"]]) {
  await page.locator("main").focus();
  await page.keyboard.press("g");
  await page.keyboard.press(key);
  await page.waitForURL(`**/${hash}`);
}
await page.waitForSelector("tbody tr");
await page.keyboard.press("/");
report.found = await page.evaluate(() => document.activeElement.id);
await end();
