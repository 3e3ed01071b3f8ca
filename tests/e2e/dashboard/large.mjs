// What stays bounded and how long it takes with much data. {jobs: 50 jobs with long series, long: job with a million
// points, log: job with a long log, live: running job, or null, updates}
import {readFileSync} from "node:fs";
import {given, report, open, browser, end} from "./browser.mjs";

const system = await browser.newBrowserCDPSession();
// Of the largest process that shows pages, in bytes: its private memory and its part of what it shares; all of it is of
// the tab that is open.
async function tabBytes() {
  const {processInfo} = await system.send("SystemInfo.getProcessInfo");
  const pss = (p) => 1024 * Number(readFileSync(`/proc/${p.id}/smaps_rollup`, "utf8").match(/^Pss:\s+(\d+) kB$/m)[1]);
  return Math.max(...processInfo.filter((p) => p.type === "renderer").map(pss));
}

// Milliseconds from the start of the page until the first job is drawn, and until the first paint of anything.
const page = await open({script: () => {
  window.firstRow = new Promise((done) => new MutationObserver((_, observer) => {
    if (document.querySelector("tbody .name")?.textContent) { observer.disconnect(); requestAnimationFrame(() => setTimeout(() => done(performance.now()))); }
  }).observe(document, {childList: true, subtree: true, characterData: true}));
}});
report.paint = [];
for (let i = 0; i < given.times; i++) {
  await page.reload();
  const row = await page.evaluate(() => window.firstRow);
  report.paint.push([await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime), row]);
}
report.rows = await page.locator("tbody tr .name").count();
if (given.found) {
  await page.getByRole("button", {name: "Older"}).click();
  await page.waitForFunction(() => document.querySelector(".bar [role=status]").textContent.startsWith("51"));
  await page.fill("#search", given.found);
  await page.waitForFunction((text) => [...document.querySelectorAll("tbody .name")].every((a) => a.textContent.includes(text)), given.found);
  report.found = await page.locator("tbody tr .name").count();
}

// Milliseconds from the address to all curves.
report.overlay = [];
for (let i = 0; i < given.times; i++) {
  await page.to("#/hosts");
  await page.locator("h1").waitFor();
  report.overlay.push(await page.evaluate(async (hash) => {
    const begin = performance.now(), wanted = hash.split(",").length;
    const drawn = new Promise((done) => new MutationObserver((_, observer) => { // looking at each frame would take a part of the time
      if (document.querySelectorAll(".compare .line").length >= wanted) { observer.disconnect(); done(); }
    }).observe(document, {childList: true, subtree: true}));
    location.hash = hash;
    await drawn;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - begin;
  }, `#/compare/${given.jobs.join(",")}`));
}
report.tab = await tabBytes();
report.heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
report.bytes = await page.evaluate(() => performance.getEntriesByType("resource").filter((e) => e.name.includes("QueryMetrics")).slice(-50).reduce((n, e) => n + e.decodedBodySize, 0));

await page.to(`#/jobs/${given.long}`);
report.long = await page.evaluate(async () => {
  const begin = performance.now();
  while (!document.querySelector(".chart .line")) await new Promise(requestAnimationFrame);
  return [performance.now() - begin, document.querySelector(".chart .line").getAttribute("points").split(" ").length];
});
await page.to(`#/jobs/${given.log}`);
await page.waitForFunction(() => document.querySelectorAll(".log .lines > div").length > 10);
report.log = await page.evaluate(() => [document.querySelectorAll(".log .lines > div").length, document.querySelector(".log .lines > div:last-child").textContent]);
await page.context().close();

// A page that is open for long: timers run `given.faster` times as fast.
if (given.live) {
  const live = await open({script: `{const real = setTimeout; window.turns = 0; window.setTimeout = (f, ms, ...rest) => { if (ms === 1000) window.turns++; return real(f, ms / ${given.faster}, ...rest); };}`});
  await live.to(`#/jobs/${given.live}`);
  await live.waitForFunction(() => document.querySelector(".chart .line"));
  const session = await live.context().newCDPSession(live);
  const heap = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const {metrics} = await session.send("Performance.getMetrics"), of = (name) => metrics.find((m) => m.name === name).value;
    return [of("JSHeapUsedSize"), of("Nodes")];
  };
  await session.send("Performance.enable");
  await live.waitForFunction((n) => window.turns > n, given.updates / 10, {timeout: 600000});
  report.before = await heap();
  await live.waitForFunction((n) => window.turns > n, given.updates, {timeout: 600000});
  report.after = await heap();
  report.tab = await tabBytes();
  report.turns = await live.evaluate(() => window.turns);
}
await end();
