// The log of a job. Only the lines in view are elements, so that a log of any length costs the same.
//
// The box begins with the last lines and follows the end. When a time is pointed at that is older than the lines it
// has, it reads the lines of that time, and does not follow the end until the user returns there. At most LINES lines
// are kept.
import {call} from "./service.js";
import {h, timeText, message} from "./text.js";
import {lastAtMost} from "./columns.js";

const LINES = 20000, LAST = 2000, HEIGHT = 18, AROUND_MS = 250;

export class Log {
  constructor(job) {
    Object.assign(this, {job, cursor: "", all: [], shown: [], query: "", times: [], at: -1, live: true, follows: true, whole: false, timer: 0, busy: false});
    this.lines = h("div", {class: "lines"});
    this.height = h("div", {class: "height"}, this.lines);
    this.box = h("div", {class: "log", tabindex: 0, role: "region", "aria-label": "Lines of the log", onscroll: () => this.scrolled()}, this.height);
    this.note = h("span", {class: "dim", role: "status"});
    this.end = h("button", {type: "button", hidden: true, onclick: () => this.toEnd()}, "Follow the end");
    this.failure = h("div");
    this.element = h("section", {class: "pane", "aria-label": "Log"}, h("div", {class: "bar"}, h("input", {type: "search", placeholder: "Find in these lines", "aria-label": "Find in the log", size: 18, oninput: (e) => { this.query = e.target.value.toLowerCase(); this.filter(); }}),
      h("span", {class: "fill"}), this.note, this.end), this.failure, this.box);
    this.resizer = new ResizeObserver(() => this.follows ? this.toBottom() : this.render());
    this.resizer.observe(this.box);
  }

  // Reads new lines, unless lines of an older time are shown.
  async update() {
    if (!this.live || this.busy) return;
    this.busy = true;
    const first = !this.cursor;
    try {
      await this.read(first ? {last_lines: LAST} : {cursor: this.cursor});
      if (first) this.whole = this.all.length < LAST;
    } finally { this.busy = false; }
  }

  async read(from, pages = 20) {
    for (let more = true, n = 0; more && n < pages; n++, from = {cursor: this.cursor}) {
      const answer = await call("LogService/TailLogs", {job: this.job, ...from});
      for (const m of answer.messages) { this.cursor = m.cursor || this.cursor; this.append(m.lines); }
      more = answer.more;
    }
    const n = this.all.length;
    this.note.textContent = n ? `${n.toLocaleString("en")} ${n === 1 ? "line" : "lines"}` : "no lines yet";
  }

  append(lines) {
    for (const l of lines) this.all.push({rank: l.rank, text: l.text, stream: l.stream, attempt: l.attempt, time: Date.parse(l.time) / 1000});
    if (this.all.length > LINES) {
      this.all.splice(0, this.all.length - LINES);
      this.whole = false;
    }
    this.filter();
    if (this.follows) this.toBottom();
  }

  // The user leaves the end, or returns to it.
  scrolled() {
    this.follows = this.live && this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 2 * HEIGHT;
    this.render();
  }

  toBottom() {
    this.box.scrollTop = this.box.scrollHeight;
    this.render();
  }

  filter() {
    this.shown = this.query ? this.all.filter((l) => l.text.toLowerCase().includes(this.query)) : this.all;
    this.times = this.shown.map((l) => l.time);
    this.height.style.height = `${this.shown.length * HEIGHT + 8}px`;
    this.render();
  }

  render() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - 10), n = Math.ceil(this.box.clientHeight / HEIGHT) + 20;
    this.lines.style.top = `${first * HEIGHT + 4}px`;
    this.lines.replaceChildren(...this.shown.slice(first, first + n).map((l, i) => h("div", {class: first + i === this.at ? `${l.stream} at` : l.stream, title: `rank ${l.rank}, attempt ${l.attempt}, ${l.stream}, ${timeText(l.time * 1000)}`}, h("i", {}, String(l.rank)), l.text)));
  }

  // Shows the lines of a time, in seconds since 1970; null: nothing is pointed at.
  follow(time) {
    clearTimeout(this.timer);
    if (time === null) { this.at = -1; this.render(); return; }
    const times = this.times, known = times.length && time >= times[0] && (this.live || time <= times[times.length - 1]);
    if (known || this.whole || this.query) this.point(time);
    else this.timer = setTimeout(() => this.around(time).catch((e) => this.failure.replaceChildren(message(e.message))), AROUND_MS);
  }

  // Ranks report by themselves: lines are in the order of time only nearly.
  point(time) {
    if (!this.times.length) return;
    this.at = Math.max(0, lastAtMost(this.times, time));
    this.follows = false;
    this.box.scrollTop = Math.max(0, this.at * HEIGHT - this.box.clientHeight / 2);
    this.render();
  }

  async around(time) {
    if (this.busy) return;
    this.busy = true;
    try {
      Object.assign(this, {all: [], cursor: "", live: false});
      this.end.hidden = false;
      await this.read({from_time: new Date(time * 1000).toISOString()}, 1);
    } finally { this.busy = false; }
    this.point(time);
  }

  async toEnd() {
    Object.assign(this, {live: true, follows: true, all: [], cursor: "", at: -1});
    this.end.hidden = true;
    await this.update().catch((e) => this.failure.replaceChildren(message(e.message)));
    this.toBottom();
  }

  close() { clearTimeout(this.timer); this.resizer.disconnect(); }
}
