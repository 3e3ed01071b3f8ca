// A spec as a list of fields, with the help texts of the JSON Schema.
import {h, prose} from "./text.js";

let loading = null;
export const schemaLoad = () => loading ||= fetch("spec.schema.json").then((a) => a.json());

// The node that a $ref names, with the description beside the $ref.
export function resolve(schema, node) {
  if (!node?.$ref) return node || {};
  return {...schema.$defs[node.$ref.replace("#/$defs/", "")], description: node.description};
}

// A message that is one of several: {anyOf: [{enum: names}, {properties}]}. Returns the properties of these names, or null.
// Other properties are settings of whatever is chosen.
const isChoice = (node) => node.anyOf && node.anyOf.length === 2 && node.anyOf[0].enum && node.anyOf[1].properties;
const pick = (node, member) => Object.fromEntries(Object.entries(node.anyOf[1].properties).filter(([name]) => node.anyOf[0].enum.includes(name) === member));
export const choiceOf = (node) => isChoice(node) ? pick(node, true) : null;
export const settingsOf = (node) => isChoice(node) ? pick(node, false) : {};

const scalar = (value) => typeof value === "object" ? JSON.stringify(value) : String(value);

export function specView(schema, value, node = schema.$defs.JobSpec) {
  const properties = node.properties || {...choiceOf(node), ...settingsOf(node)};
  return h("dl", {class: "spec"}, Object.entries(value).map(([name, below]) => {
    const field = resolve(schema, properties[name]), nested = below !== null && typeof below === "object" && !Array.isArray(below) && (field.properties || choiceOf(field));
    return h("div", {}, h("dt", {}, name, nested ? "" : ":"), nested ? null : h("dd", {}, scalar(below)), field.description ? h("dd", {class: "help"}, prose(field.description)) : null,
      nested ? h("dd", {class: "below"}, specView(schema, below, field)) : null);
  }));
}
