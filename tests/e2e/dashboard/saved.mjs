// Saves a job and a comparison, and opens the files from disk without a network. {jobs, markup}
import {given, report, open, browser, end} from "./browser.mjs";
import {pathToFileURL} from "node:url";

report.saved = {};
const page = await open();
async function save(name, hash, ready) {
  await page.to(hash);
  await page.locator(ready).first().waitFor({state: "attached"});
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", {name: "Save as HTML"}).click()]);
  const file = `${given.folder}/${name}.html`;
  await download.saveAs(file);
  const context = await browser.newContext({offline: true}), alone = await context.newPage(), requests = [];
  alone.on("console", (m) => { if (m.type() === "error") report.errors.push(m.text()); });
  alone.on("request", (r) => requests.push(r.url()));
  await alone.goto(pathToFileURL(file).href);
  report.saved[name] = {file: download.suggestedFilename(), requests: requests.length, title: await alone.title(), lines: await alone.locator("svg polyline.line").count(), scripts: await alone.locator("script, img, iframe, link").count(), text: await alone.locator("body").innerText(), marks: await alone.locator(".mark").count()};
  await alone.screenshot({path: `${given.folder}/saved-${name}.png`});
  await context.close();
}
await save("job", `#/jobs/${given.jobs[0]}`, ".chart .line");
await save("markup", `#/jobs/${given.markup}`, ".log .lines div");
await save("compare", `#/compare/${given.jobs.join(",")}`, ".compare .line");
await end();
