// Tiles of GPUs in the overview and on the page of hosts: what each says, how it looks, and what axe-core finds.
// {wanted: {class: number of tiles}}
import {require, given, report, open, end} from "./browser.mjs";

const axe = require.resolve("axe-core/axe.min.js");
report.violations = [];
report.tiles = {};
report.looks = {};
for (const theme of ["light", "dark"]) {
  const page = await open({theme, script: {path: axe}});
  for (const [name, hash] of [["overview", "#/"], ["hosts", "#/hosts"]]) {
    await page.to(hash);
    await page.waitForFunction((wanted) => Object.entries(wanted).every(([kind, n]) => document.querySelectorAll(`.gpu.${kind}`).length === n), given.wanted);
    const tiles = await page.locator(".gpu").evaluateAll((all) => all.map((e) => {
      const {borderTopStyle, borderTopColor, backgroundImage, backgroundColor} = getComputedStyle(e);
      return {kind: e.className.replace("gpu ", ""), text: e.textContent, clipped: e.scrollWidth > e.clientWidth, links: e.querySelectorAll("a[href]").length, look: [borderTopStyle, borderTopColor, backgroundImage, backgroundColor, e.querySelector("i") !== null].join(" ")};
    }));
    report.tiles[name] = tiles.map(({kind, text, clipped, links}) => ({kind, text, clipped, links}));
    report.looks[theme] = Object.fromEntries(tiles.map((t) => [t.kind, t.look]));
    await page.screenshot({path: `${given.folder}/gpus-${name}-${theme}.png`});
    const found = await page.evaluate(() => axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}));
    for (const v of found.violations) report.violations.push(`${name} ${theme}: ${v.id}: ${v.nodes[0].html}`);
  }
  // The links of the tiles are reached by the Tab key.
  report.focused = await page.evaluate(() => [...document.querySelectorAll(".gpu a")].every((a) => { a.focus(); return document.activeElement === a && a.tabIndex === 0; }));
  await page.context().close();
}
await end();
