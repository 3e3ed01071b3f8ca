// A spec as a list of fields, with the help texts of the JSON Schema.
import {h, prose} from "./text.js";

let loading = null;
export const schemaLoad = () => loading ||= fetch("spec.schema.json").then((a) => a.json());

// The node that a $ref names, with the description beside the $ref.
export function resolve(schema, node) {
  if (!node?.$ref) return node || {};
  return {...schema.$defs[node.$ref.replace("#/$defs/", "")], description: node.description};
}

// A message that is one of several: {anyOf: [{enum: names}, {properties}]}. Returns the properties, or null.
export const choiceOf = (node) => node.anyOf && node.anyOf.length === 2 && node.anyOf[0].enum && node.anyOf[1].properties || null;

const scalar = (value) => typeof value === "object" ? JSON.stringify(value) : String(value);

export function specView(schema, value, node = schema.$defs.JobSpec) {
  const properties = choiceOf(node) || node.properties || {};
  return h("dl", {class: "spec"}, Object.entries(value).map(([name, below]) => {
    const field = resolve(schema, properties[name]), nested = below !== null && typeof below === "object" && !Array.isArray(below) && (field.properties || choiceOf(field));
    return h("div", {}, h("dt", {}, name, nested ? "" : ":"), nested ? null : h("dd", {}, scalar(below)), field.description ? h("dd", {class: "help"}, prose(field.description)) : null,
      nested ? h("dd", {class: "below"}, specView(schema, below, field)) : null);
  }));
}
