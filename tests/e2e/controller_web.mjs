// node controller_web.mjs URL CHROMIUM TOKEN: enters a wrong token, then the good one; prints "shown" when the page shows
// its content, waits for a line, and then for the page to ask again. Prints a report as JSON. NODE_PATH has playwright-core.
import {createRequire} from "node:module";
const {chromium} = createRequire(process.env.NODE_PATH + "/")("playwright-core");

const [url, executablePath, token] = process.argv.slice(2);
const report = {asked: [], foreign: [], errors: []};
const browser = await chromium.launch({executablePath, args: ["--headless", "--no-sandbox", "--disable-gpu"]});
const page = await (await browser.newContext({ignoreHTTPSErrors: true})).newPage();
page.on("pageerror", (e) => report.errors.push(e.stack));
page.on("request", (r) => { if (!r.url().startsWith(url) && !r.url().startsWith("data:")) report.foreign.push(r.url()); });

async function asked(before) {
  const alert = page.locator("dialog[open] [role=alert]").filter({hasNotText: before});
  await alert.waitFor();
  report.asked.push(await alert.textContent());
}
async function give(text) {
  await page.fill("dialog[open] input", text);
  await page.press("dialog[open] input", "Enter");
}

await page.goto(url);
await asked("-");
await page.press("dialog[open] input", "Escape"); // nothing works without a token
await give("wrong");
await asked(report.asked[0]);
await give(token);
await page.waitForSelector("tbody tr");
await page.reload();
await page.waitForSelector("tbody tr"); // the tab still has it
report.local = await page.evaluate(() => localStorage.getItem("token") || document.cookie);
console.log("shown");
await new Promise((resolve) => process.stdin.once("data", resolve));
await asked("-");
console.log(JSON.stringify(report));
await browser.close();
