// The strip of rank-seconds: where the time of a job's ranks went. The causes add up to wall time x ranks.
import {call} from "./service.js";
import {h, durationText, secondsText} from "./text.js";

// In the order in which they are drawn.
const CAUSES = {start: ["starting", "#7a8290"], data: ["waiting for data", "#b58900"], compute: ["computing", "#2f9e6e"], waiting: ["waiting for ranks", "#a05fd0"], checkpoint: ["checkpoint", "#13919b"], repeated: ["repeated steps", "#d1603d"], idle: ["idle", "var(--strong)"]};
const RANKS = 64;

const total = (sum) => Object.keys(CAUSES).reduce((t, cause) => t + sum[cause], 0);
const timeOf = (s) => s < 60 ? secondsText(s) : durationText(s);
const share = (sum, cause) => `${(100 * sum[cause] / (total(sum) || 1)).toFixed(1)}%`;

function bar(sum, whole, label) {
  return h("div", {class: "stack", role: "img", "aria-label": `${label}: ${Object.keys(CAUSES).map((cause) => `${CAUSES[cause][0]} ${timeOf(sum[cause])}`).join(", ")}`}, Object.entries(CAUSES).filter(([cause]) => sum[cause] > 0).map(([cause, [name, colour]]) => {
    const part = h("span", {title: `${name}: ${timeOf(sum[cause])}, ${share(sum, cause)}`, "data-cause": cause, "data-seconds": sum[cause]});
    part.style.width = `${100 * sum[cause] / (whole || 1)}%`;
    part.style.background = colour;
    return part;
  }));
}

function row(title, sum, whole) { return [h("span", {}, title), bar(sum, whole, title), h("span", {class: "number dim"}, timeOf(total(sum)))]; }

export class RankSeconds {
  constructor(name) {
    Object.assign(this, {name, open: false});
    this.body = h("div");
    this.parts = h("div", {class: "parts"});
    this.element = h("section", {class: "panel strip", "aria-label": "Rank-seconds", hidden: true}, this.body, h("details", {ontoggle: (e) => { this.open = e.target.open; this.show(); }}, h("summary", {}, "Attempts and ranks"), this.parts));
  }

  async update(job) {
    if (!job.attempt) return;
    this.answer = await call("JobService/GetRankSeconds", {name: this.name, attempt: job.attempt});
    this.show();
  }

  show() {
    const {total: sum, attempts, ranks} = this.answer;
    this.element.hidden = total(sum) === 0;
    this.body.replaceChildren(h("div", {class: "top"}, h("h2", {}, "Rank-seconds"), h("span", {class: "dim"}, `${timeOf(total(sum))} = wall time × ranks`)), bar(sum, total(sum), "All attempts"),
      h("div", {class: "legend"}, Object.entries(CAUSES).filter(([cause]) => sum[cause] > 0).map(([cause, [name, colour]]) => {
        const block = h("span", {class: "block"});
        block.style.background = colour;
        return h("span", {}, block, `${name} ${share(sum, cause)}`);
      })));
    if (!this.open) return;
    const longest = Math.max(...attempts.map((a) => total(a.sum))), wall = Math.max(...ranks.map((r) => total(r.sum)));
    this.parts.replaceChildren(...attempts.flatMap((a) => row(`Attempt ${a.attempt}, ${a.ranks} ${a.ranks === 1 ? "rank" : "ranks"}`, a.sum, longest)), ...(ranks.length > 1 ? ranks.slice(0, RANKS).flatMap((r) => row(`Rank ${r.rank} of the last attempt`, r.sum, wall)) : []));
  }
}
