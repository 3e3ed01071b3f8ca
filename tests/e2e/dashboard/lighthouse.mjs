// Lighthouse's accessibility of every page. {pages: [[name, hash]]}
import {given, report, require, browser, ARGUMENTS, origin} from "./browser.mjs";
import {pathToFileURL} from "node:url";
import {mkdtempSync} from "node:fs";

await browser.close();
const {chromium} = require("playwright-core"), folder = mkdtempSync(`${given.folder}/profile-`);
const lighthouse = (await import(pathToFileURL(require.resolve("lighthouse")).href)).default;
const context = await chromium.launchPersistentContext(folder, {executablePath: given.chromium, args: [...ARGUMENTS, `--remote-debugging-port=${given.port}`]});
const page = await context.newPage();
await page.goto(given.url); // keeps the key
await page.waitForSelector("tbody tr");
report.scores = {};
for (const [name, hash] of given.pages) {
  const {lhr} = await lighthouse(`${origin}/${hash}`, {port: given.port, output: "json", logLevel: "silent", onlyCategories: ["accessibility"], disableStorageReset: true});
  report.scores[name] = [lhr.categories.accessibility.score, Object.values(lhr.audits).filter((a) => a.score === 0).map((a) => a.id)];
}
await context.close();
console.log(JSON.stringify(report));
