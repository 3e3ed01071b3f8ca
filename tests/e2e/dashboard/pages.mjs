// Every page in both themes and in a narrow window: screenshots, what axe-core finds, and what is wider than the window.
// {jobs: [job], markup: job, gpu: job or null}
import {require, given, report, open, end} from "./browser.mjs";

const axe = require.resolve("axe-core/axe.min.js");
Object.assign(report, {violations: [], wide: [], titles: []});

const PAGES = [
  ["overview", "#/", "tbody tr .spark"], ["job", `#/jobs/${given.jobs[0]}`, ".chart .line"], ["compare", `#/compare/${given.jobs.join(",")}`, ".compare .line"],
  ["hosts", "#/hosts", ".host .slot"], ["new", `#/new/${given.jobs[0]}`, ".gantt"], ["program", `#/jobs/${given.markup}`, ".log .lines div"], ["empty", "#/compare", ".empty"],
];

for (const theme of ["light", "dark"]) {
  for (const width of [1400, 390]) {
    const page = await open({theme, width, script: {path: axe}});
    for (const [name, hash, ready] of PAGES) {
      await page.to(hash);
      await page.waitForSelector(ready, {state: "attached"});
      if (name === "program") report.titles.push(await page.title(), await page.locator("main img").count());
      await page.screenshot({path: `${given.folder}/${name}-${theme}${width < 1000 ? "-narrow" : ""}.png`});
      if (await page.evaluate(() => document.scrollingElement.scrollWidth > innerWidth)) report.wide.push(`${name} ${width}`);
      if (width < 1000 && theme === "dark") continue;
      const found = await page.evaluate(() => axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}));
      for (const v of found.violations) report.violations.push(`${name} ${theme} ${width}: ${v.id}: ${v.nodes[0].html}`);
    }
    await page.context().close();
  }
}
await end();
