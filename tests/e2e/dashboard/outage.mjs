// What the page says when nobody answers, and that it goes on. The test kills things between the lines: {job}
import {given, report, open, end} from "./browser.mjs";
import {createInterface} from "node:readline";

const lines = createInterface({input: process.stdin})[Symbol.asyncIterator]();
// Prints what is done, and waits until the test answers.
async function say(word) { console.error(word); await lines.next(); }

report.sentences = [];
const page = await open({expected: /Failed to load resource/});
await page.to(`#/jobs/${given.job}`);
await page.locator("h1").waitFor();
const banner = page.locator("#connection");
const step = async () => Number((await page.locator(".progress strong").textContent()).replace(/,/g, ""));
await page.waitForFunction(() => document.querySelectorAll(".chart .line").length > 0);
await say("shown");
if (given.returns) {
  const before = await step();
  await page.waitForFunction((n) => Number(document.querySelector(".progress strong").textContent.replace(/,/g, "")) > n, before);
} else {
  await page.waitForFunction(() => document.getElementById("connection").textContent !== "");
  report.sentences.push(await banner.textContent());
}
report.banner = await banner.textContent();
report.lines = await page.locator(".chart .line").count();
await end();
