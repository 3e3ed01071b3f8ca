// The form: wrong values are reported beside their fields while the user types, the plan is shown, a job is made and
// cancelled, and a job is forked. Only the keyboard is used to submit. {job, step}
import {given, report, open, end} from "./browser.mjs";

const page = await open();
await page.to(`#/new/${given.job}`);
await page.fill('[data-path="train.steps"]', "-4");
await page.locator(".problem").waitFor();
report.problem = await page.locator(".problem").textContent();
report.invalid = await page.locator('[data-path="train.steps"]').getAttribute("aria-invalid");
report.refused = await page.getByRole("button", {name: "Submit"}).isDisabled();
await page.fill('[data-path="train.steps"]', "1000000");
await page.fill('[data-path="name"]', "from-the-form");
await page.locator(".follow .badge.SUCCEEDED").waitFor();
await page.waitForFunction(() => document.querySelector("pre.text").textContent.includes("from-the-form"));
await page.locator(".follow .gantt").waitFor();
report.families = await page.locator(".follow .stack span").evaluateAll((all) => all.map((e) => e.title));
report.spans = await page.locator(".gantt rect").count();
await page.getByRole("button", {name: "Submit"}).focus();
await page.keyboard.press("Enter");
await page.waitForURL(/#\/jobs\/\d+$/);
report.created = page.url().replace(/.*\//, "");
await page.getByRole("button", {name: "Cancel job"}).focus();
await page.keyboard.press("Enter");
await page.locator("dialog[open]").waitFor();
await page.keyboard.press("Escape");
report.kept = await page.locator("h1 ~ .badge.CANCELLED").count();
await page.getByRole("button", {name: "Cancel job"}).click();
await page.locator("dialog button[type=submit]").click();
await page.locator("h1 ~ .badge.CANCELLED").waitFor();

await page.to(`#/new/${given.job}@${given.step}`);
await page.locator(".follow .badge.SUCCEEDED").waitFor();
report.from = await page.locator("#fork").inputValue();
await page.fill('[data-path="name"]', "a-fork");
await page.waitForFunction(() => document.querySelector("pre.text").textContent.includes("a-fork"));
await page.getByRole("button", {name: "Submit"}).click();
await page.waitForURL(/#\/jobs\/\d+$/);
report.forked = page.url().replace(/.*\//, "");

await page.to("#/new");
await page.getByRole("button", {name: "Program"}).click();
await page.locator('[data-path="program.command"]').waitFor();
report.program = await page.locator('[data-path="train.steps"]').count();
await end();
