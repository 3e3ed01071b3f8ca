// A form for a message of the JSON Schema of job specs. It edits a plain object: a field that is left empty is not in
// the object, and its default is shown as a placeholder.
import {h, prose} from "./text.js";
import {resolve, choiceOf, settingsOf} from "./spec_view.js";

// A message with more optional values than this hides them until the user asks.
const SHOWN = 3, ROWS = 8;

function defaultText(node) {
  if (node.default !== undefined) return String(node.default);
  if (node.minimum !== undefined && node.maximum !== undefined) return `${node.minimum} to ${node.maximum}`;
  return "";
}

export class SpecForm {
  // changed(): called after each edit of `value`.
  constructor(schema, value, changed) { Object.assign(this, {schema, value, changed, next: 0}); }

  element() { return this.fields(this.schema.$defs.JobSpec, this.value, ""); }

  // into: the object that has the fields. path: of the message, for labels.
  fields(message, into, path) {
    const required = message.required || [], rows = Object.entries(message.properties)
      .filter(([name]) => !name.endsWith("_auto")) // what the word `auto` sets
      .map(([name, node]) => [name, resolve(this.schema, node)]);
    const rare = path ? rows.filter(([name, node]) => !required.includes(name) && into[name] === undefined && !choiceOf(node) && !node.properties) : [];
    const one = ([name, node]) => this.field(name, node, into, path ? `${path}.${name}` : name, required.includes(name));
    if (rare.length <= SHOWN) return h("div", {class: "fields"}, rows.map(one));
    return h("div", {class: "fields"}, rows.filter((row) => !rare.includes(row)).map(one),
      h("details", {class: "more"}, h("summary", {}, `${rare.length} optional fields `, h("small", {}, `${rare.slice(0, 4).map(([name]) => name).join(", ")}…`)), rare.map(one)));
  }

  field(name, node, into, path, required) {
    const choice = choiceOf(node);
    if (choice) return this.choice(name, choice, settingsOf(node), into, path);
    if (node.properties) return this.message(name, node, into, path);
    const id = `field-${this.next++}`, help = node.description ? h("small", {id: `${id}-help`, class: "dim"}, prose(node.description)) : null;
    const input = this.input(name, node, into, {id, "aria-describedby": help ? `${id}-help` : null, "data-path": path});
    return h("div", {class: "field"}, h("label", {for: id, title: path}, name, required ? " *" : ""), input, help);
  }

  set(into, name, value) {
    if (value === undefined) delete into[name]; else into[name] = value;
    this.changed();
  }

  input(name, node, into, attributes) {
    const present = into[name];
    if (node.type === "boolean" || node.enum) {
      const names = node.enum ? node.enum.map(String) : ["true", "false"];
      const empty = node.default === undefined ? "not given" : `${node.default} (default)`;
      return h("select", {...attributes, onchange: (e) => this.set(into, name, e.target.value === "" ? undefined : node.type === "boolean" ? e.target.value === "true" : node.enum.find((v) => String(v) === e.target.value))},
        h("option", {value: ""}, empty), names.map((v) => h("option", {value: v, selected: present !== undefined && String(present) === v}, v)));
    }
    if (node.items?.$ref || node.additionalProperties?.$ref || node.additionalProperties?.type === "number")
      return h("textarea", {...attributes, rows: ROWS, placeholder: node.type === "array" ? "[...]" : "{...}", oninput: (e) => this.set(into, name, this.json(e.target.value))}, present === undefined ? "" : typeof present === "string" ? present : JSON.stringify(present, null, 2));
    if (node.type === "array")
      return h("textarea", {...attributes, rows: Math.min(ROWS, Math.max(2, (present || []).length)), placeholder: "one in each line", oninput: (e) => this.set(into, name, this.lines(e.target.value, node.items))}, (present || []).join("\n"));
    if (node.type === "object")
      return h("textarea", {...attributes, rows: 2, placeholder: "name: value, one in each line", oninput: (e) => this.set(into, name, this.pairs(e.target.value))},
        Object.entries(present || {}).map(([k, v]) => `${k}: ${v}`).join("\n"));
    return h("input", {...attributes, value: present === undefined ? "" : this.text(present), placeholder: defaultText(node), autocomplete: "off",
      oninput: (e) => this.set(into, name, this.scalar(e.target.value, node))});
  }

  // A mapping, as a number of ranks may be one, is written as in YAML: {min: 1, max: 4}.
  text(value) {
    if (typeof value !== "object") return String(value);
    return `{${Object.entries(value).map(([k, v]) => `${k}: ${v}`).join(", ")}}`;
  }

  // A text that is no number stays a text: the controller then says what is wrong with it.
  scalar(text, node) {
    if (text === "") return undefined;
    if (node.type === "string") return text;
    const inner = (node.anyOf || []).some((one) => one.$ref) && /^\s*\{(.*)\}\s*$/.exec(text);
    if (inner) return Object.fromEntries(inner[1].split(",").filter((pair) => pair.includes(":")).map((pair) => {
      const [name, value] = [pair.slice(0, pair.indexOf(":")).trim(), pair.slice(pair.indexOf(":") + 1).trim()];
      return [name, this.scalar(value, {})];
    }));
    return text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
  }

  // What is no JSON stays a text: the controller then says what is wrong with it.
  json(text) {
    if (text.trim() === "") return undefined;
    try { return JSON.parse(text); } catch { return text; }
  }

  lines(text, items) {
    const all = text.split("\n").filter((line) => line !== "").map((line) => this.scalar(line, items));
    return all.length ? all : undefined;
  }

  pairs(text) {
    const all = text.split("\n").filter((line) => line.includes(":")).map((line) => [line.slice(0, line.indexOf(":")).trim(), line.slice(line.indexOf(":") + 1).trim()]);
    return all.length ? Object.fromEntries(all) : undefined;
  }

  settings(settings, into, path) {
    return Object.keys(settings).length ? [this.fields({properties: settings}, into, path)] : [];
  }

  // The members of a choice: one of them is shown, and the settings that all of them have.
  choice(name, members, settings, into, path) {
    if (typeof into[name] === "string") into[name] = {[into[name]]: {}};
    const id = `field-${this.next++}`, body = h("div"), chosen = Object.keys(into[name] || {}).find((key) => members[key]) || "";
    const show = (member) => {
      const value = into[name]?.[member];
      body.replaceChildren(...(member && members[member] ? [this.fields(resolve(this.schema, members[member]), value, `${path}.${member}`), ...this.settings(settings, into[name], path)] : []));
    };
    const select = h("select", {id, "data-path": path, onchange: (e) => {
      const kept = Object.fromEntries(Object.entries(into[name] || {}).filter(([key]) => settings[key]));
      if (e.target.value) into[name] = {[e.target.value]: {}, ...kept}; else delete into[name];
      show(e.target.value);
      this.changed();
    }}, h("option", {value: ""}, "not given"), Object.keys(members).map((m) => h("option", {value: m, selected: m === chosen}, m)));
    show(chosen);
    return h("fieldset", {}, h("legend", {}, name), h("div", {class: "field"}, h("label", {for: id}, "kind"), select,
      members[chosen]?.description ? h("small", {class: "dim"}, prose(members[chosen].description)) : null), body);
  }

  // A message that is not given stays closed, and is not in the spec.
  message(name, node, into, path) {
    const body = h("div"), below = {};
    const open = () => {
      if (into[name] === undefined) into[name] = below;
      if (!body.firstChild) body.append(this.fields(node, into[name], path));
      this.changed();
    };
    const details = h("details", {"data-message": path, ontoggle: () => {
      if (details.open) open();
      else if (Object.keys(into[name] || {}).length === 0) { delete into[name]; this.changed(); }
    }}, h("summary", {}, name, node.description ? h("small", {}, prose(node.description)) : null), body);
    if (into[name] !== undefined) details.open = true;
    return details;
  }
}
