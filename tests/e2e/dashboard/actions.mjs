// Each action with its one confirmation. {running, failed, done: jobs; allowed: whether the user may act}
import {given, report, open, call, end} from "./browser.mjs";

const page = await open({expected: given.allowed ? null : /status of 403/});
report.sentences = {};
report.states = {};

// Clicks the button and its confirmation. Refused: the sentence, and the dialog is closed.
async function confirm(button, name) {
  await button.click();
  await page.locator("dialog[open] button[type=submit]").click();
  if (given.allowed) return page.locator("dialog[open]").waitFor({state: "hidden"});
  report.sentences[name] = await page.locator("dialog[open] .message").textContent();
  await page.keyboard.press("Escape");
}

const state = (name, wanted) => given.allowed && page.locator(`h1 ~ .badge.${wanted}`).waitFor().then(() => { report.states[name] = wanted; });
const button = (name) => page.getByRole("button", {name});

await page.to(`#/jobs/${given.running}`);
if (!given.allowed) await page.locator(".pane [role=status]", {hasText: /^no lines yet$/}).waitFor(); // the job has not run
await confirm(button("Pause job"), "pause");
await state("pause", "PAUSED");
if (given.allowed) {
  await confirm(button("Resume job"), "resume");
  await state("resume", "RUNNING");
  await page.locator(".chart .mark.pause").first().waitFor({state: "attached"});
}
await confirm(button("Cancel job"), "cancel");
await state("cancel", "CANCELLED");
await page.to(`#/jobs/${given.failed}`);
await confirm(button("Retry job"), "retry");
if (given.allowed) await page.waitForFunction(() => /[2-9]/.test([...document.querySelectorAll(".facts div")].find((d) => d.textContent.startsWith("Attempt"))?.textContent || ""));
await page.to(`#/jobs/${given.done}`);
await page.getByRole("button", {name: "Checkpoints", exact: true}).click();
await confirm(button(/^Pin the checkpoint/).first(), "pin");
if (given.allowed) await button(/^Unpin the checkpoint/).first().waitFor();
if (given.allowed) {
  await page.getByRole("button", {name: "Sample", exact: true}).first().click();
  await page.fill("#sample-prompt", "The ");
  await page.fill("#sample-tokens", "20");
  await page.locator("dialog button[type=submit]").click();
  await page.locator("dialog pre.text:not([hidden])").waitFor();
  report.sample = await page.locator("dialog pre.text").textContent();
  await page.keyboard.press("Escape");
}

// A viewer of a service without hosts has nothing to drain.
if (given.allowed) {
  await page.to("#/hosts");
  await button(/^Drain/).click();
  await page.fill("#dialog-reason", "a new disk");
  await page.locator("dialog button[type=submit]").click();
  await button(/^Undrain/).waitFor();
  report.drained = (await call(page, "ExecutorService/ListExecutors", {})).executors[0].drain.reason;
  await confirm(button(/^Undrain/), "undrain");
  await button(/^Drain/).waitFor();
} else {
  await page.to(`#/new/${given.done}`);
  await page.locator(".follow .message").first().waitFor();
  report.sentences.submit = await page.locator(".follow .message").first().textContent();
}
await end();
