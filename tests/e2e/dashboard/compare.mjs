// Jobs beside each other. {jobs: two or more}
import {given, report, open, end} from "./browser.mjs";

const page = await open();
await page.to("#/");
for (const job of given.jobs) await page.locator("tbody tr", {has: page.locator(`a[href="#/jobs/${job}"]`)}).getByRole("checkbox").check();
await page.getByRole("button", {name: `Compare ${given.jobs.length}`}).click();
await page.locator(".compare .line").first().waitFor({state: "attached"});
const texts = () => page.locator("table tr").evaluateAll((rows) => rows.map((r) => [...r.children].slice(2).map((c) => c.textContent)));
report.table = await texts();
report.lines = await page.locator(".compare .line").count();
await page.getByRole("checkbox", {name: /^Show/}).first().uncheck();
report.hidden = await page.locator(".compare .line").count();
await page.getByRole("checkbox", {name: /^Show/}).first().check();
await page.locator("tbody tr").nth(1).hover();
report.focused = await page.locator(".compare .line").evaluateAll((lines) => lines.map((l) => l.getAttribute("opacity")));
await page.getByRole("button", {name: "train.seed"}).click();
await page.getByRole("button", {name: /train.seed/}).click();
report.sorted = await texts();
report.styles = await page.evaluate(async () => {
  const {colourOf, dashOf} = await import("./svg.js");
  return new Set(Array.from({length: 50}, (_, i) => colourOf(i) + dashOf(i))).size;
});

// A job that does not exist: a sentence, and nothing that waits for its data.
const other = await open({expected: /status of 404/});
report.missing = [];
for (const hash of ["#/jobs/999999", `#/compare/${given.jobs[0]},999999`]) {
  await other.to("#/hosts");
  await other.to(hash);
  await other.locator("main .message").waitFor();
  report.missing.push([await other.locator("main .message").textContent(), await other.locator("main .panel:visible, main .toolbar:visible").count()]);
}
await end();
