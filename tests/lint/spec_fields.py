"""The tables of fields in docs/spec.md and docs/sweep.md, and share/spec.schema.json and share/sweep.schema.json, from the
option (field) of spec.proto and sweep_spec.proto.

Without arguments: fails if one of them differs from what the protos give. With --write: writes them."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, SCHEMA, LIMITS = ROOT / "docs/spec.md", ROOT / "share/spec.schema.json", ROOT / "base/limits.h"
SWEEP_PAGE, SWEEP_SCHEMA = ROOT / "docs/sweep.md", ROOT / "share/sweep.schema.json"
BEGIN, END = "<!-- fields: written by tests/lint/spec_fields.py -->\n", "<!-- end of fields -->\n"
JOB_TITLE = "A job spec of Trainyard"
NAME_PATTERN, URI_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", "^file:///."
DATA_URI_PATTERN, SECRET_PATTERN = "^(file:///|https://|s3://|hf://).", "^[A-Za-z_][A-Za-z0-9_]{0,127}$"
FieldProto = descriptor_pb2.FieldDescriptorProto


def load():
    """The descriptors of JobSpec and SweepSpec, and the extension."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"--descriptor_set_out={out.name}", "--include_imports", f"-I{ROOT}/api",
                        "trainyard/v1/sweep_spec.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return (pool.FindMessageTypeByName("trainyard.v1.JobSpec"), pool.FindMessageTypeByName("trainyard.v1.SweepSpec"),
            pool)


class Options:
    def __init__(self, pool):
        self.number = pool.FindExtensionByName("trainyard.v1.field").number
        prototype = message_factory.MessageFactory(pool).GetPrototype
        self.options = prototype(pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
        self.extension = pool.FindExtensionByName("trainyard.v1.field")

    def of(self, field):
        rule = self.options.FromString(field.GetOptions().SerializeToString()).Extensions[self.extension]
        rule.computed = re.sub(r"\bLIMIT_\w+", limit, rule.computed)
        if rule.min_micro_batch:
            rule.help += f"; a default micro-batch has at least {rule.min_micro_batch} samples"
        return rule


def limit(name):
    """The number of a limit that spec.proto names."""
    return re.search(rf"^#define {name.group()} (\d+)$", LIMITS.read_text(), re.M).group(1)


def fields(message):
    """In the order of the file."""
    return message.fields


def mapped(field, options):
    """The field under whose name a text has this one; None: it has its own name."""
    return next((other for other in field.containing_type.fields if options.of(other).mapping == field.name), None)


def members(message):
    """Of a choice: the messages of which one is given. Others of its fields are settings of whatever that is."""
    real = [one for one in message.oneofs if not one.name.startswith("_")]
    return list(real[0].fields) if len(real) == 1 else []


def is_choice(message):
    given = members(message)
    return len(given) > 1 and given[0] is message.fields[0] and all(f.message_type is None for f in message.fields if f not in given)


def is_list(field):
    return field.label == FieldProto.LABEL_REPEATED and not is_map(field)


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def value_of(field):
    """What a map has under its keys; None: the field is no map."""
    return field.message_type.fields_by_name["value"] if is_map(field) else None


def is_described(message, field):
    """The sources of a mixture have the fields of the data of their kind."""
    return message.name == "MixtureSource" and field.message_type is not None


def is_integer(field):
    return field.type in (FieldProto.TYPE_INT32, FieldProto.TYPE_INT64)


def number(value):
    if value == int(value) and abs(value) < 1e11:
        return str(int(value))
    return f"{value:g}".replace("e+", "e").replace("e-0", "e-")


# --- the page ---

def default_text(field, rule):
    if rule.required:
        return f"required without `{rule.unless}`" if rule.unless else "required"
    if rule.computed or rule.default:
        text = field.type == FieldProto.TYPE_STRING or field.message_type
        return rule.computed or (f"`{rule.default}`" if text else rule.default)
    if field.type == FieldProto.TYPE_BOOL:
        return "false"
    return "none" if field.has_presence or is_list(field) or is_map(field) or field.type == FieldProto.TYPE_STRING else "0"


def limits(field, rule):
    below = f"below {number(rule.below)}" if rule.HasField("below") else number(rule.max) if rule.HasField("max") else None
    if rule.HasField("above"):
        return f"above {number(rule.above)}, up to {below}"
    if rule.HasField("min"):
        return f"{number(rule.min)} to {below}" if below else f"at least {number(rule.min)}"
    return "any 64-bit integer" if is_integer(field) and not rule.also else ""


def range_text(field, rule):
    parts = [f"`{choice}`" if field.type == FieldProto.TYPE_STRING else choice for choice in rule.choices]
    formats = {rule.FILE_URI: "a file URI", rule.DATA_URI: "a URI ([data.md](data.md))",
               rule.DATA_FILES: "a URI or a pattern ([data.md](data.md))", rule.NAME: "a name (below)",
               rule.SECRET: "the name of a [secret](program.md#secrets)",
               rule.CHECKPOINT: "`jobs/42/checkpoints/7`, or a file, s3 or hf URI"}
    if is_list(field) and rule.format == rule.DATA_URI:
        parts = [f"{1 if rule.required else 0} to {rule.max_items} URIs or patterns ([data.md](data.md))"]
    elif is_list(field) or is_map(field):
        each = limits(value_of(field) or field, rule) if rule.HasField("min") else ""
        parts = [f"up to {rule.max_items} {rule.unit}" + (f", each {each}" if each else "")]
    elif rule.format in formats:
        parts.append(formats[rule.format])
    elif field.type == FieldProto.TYPE_BOOL:
        parts = ["true, false"]
    elif field.message_type:
        parts = [f"`{member.name}`" for member in members(field.message_type)] if is_choice(field.message_type) else []
    elif not parts and field.type != FieldProto.TYPE_STRING:
        text = limits(field, rule)
        unit = f" {rule.unit}" if rule.unit and text else ""
        parts = [f"{'a power of two from ' if rule.power_of_two else ''}{text}{unit}"] if text else []
    parts = [", ".join(parts)] if parts else []
    parts += [f"divides `{rule.divides}`"] if rule.divides else []
    parts += [rule.also] if rule.also else []
    return "; ".join(parts)


def rows(message, options, path=""):
    for field in fields(message):
        rule = options.of(field)
        name = path + (mapped(field, options) or field).name
        inner = field.message_type if not is_list(field) and not is_map(field) else None
        if inner is not None and inner.name == "JobSpec":  # in a sweep: it has a page of its own
            continue
        if inner is None or is_choice(inner) or (rule.help and not rule.default and not field.containing_oneof):
            yield f"| `{name}` | {default_text(field, rule)} | {range_text(field, rule)} | {rule.help} |"
        elif rule.help:
            yield f"| `{name}` | | | {rule.help} |"
        if inner is not None and not is_described(message, field):
            yield from rows(inner, options, name + ".")
        if is_list(field) and field.message_type:
            yield from rows(field.message_type, options, name + "[].")
        if is_map(field) and value_of(field).message_type:
            key = "PATH" if message.name == "SweepSpec" else "NAME"
            yield from rows(value_of(field).message_type, options, f"{name}.{key}.")


def table(message, options):
    head = ["| field | default | range | meaning |", "|---|---|---|---|"]
    return BEGIN + "\n".join(head + list(rows(message, options))) + "\n" + END


# --- the schema ---

def described(rule, schema):
    text = ", ".join(filter(None, [rule.help, f"in {rule.unit}" if rule.unit and schema.get("type") in ("integer", "number") else "",
                                   f"divides `{rule.divides}`" if rule.divides else "",
                                   "a power of two" if rule.power_of_two else "", rule.also]))
    text += f" (default: {rule.computed})" if rule.computed else ""
    return {**({"description": text.strip()} if text else {}), **schema}


def scalar_schema(field, rule):
    if field.type == FieldProto.TYPE_BOOL:
        return {"type": "boolean"}
    if field.type == FieldProto.TYPE_STRING:
        kinds = [{"enum": list(rule.choices)}] if rule.choices else []
        kinds += [{"pattern": URI_PATTERN}] if rule.format == rule.FILE_URI else []
        kinds += [{"pattern": DATA_URI_PATTERN}] if rule.format in (rule.DATA_URI, rule.DATA_FILES) else []
        kinds += [{"pattern": SECRET_PATTERN}] if rule.format == rule.SECRET else []
        kinds += [{"pattern": NAME_PATTERN}] if rule.format == rule.NAME else []
        return {"type": "string", **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})}
    if rule.choices:
        return {"enum": [int(choice) for choice in rule.choices]}
    schema = {"type": "integer" if is_integer(field) else "number"}
    names = {"min": "minimum", "max": "maximum", "above": "exclusiveMinimum", "below": "exclusiveMaximum"}
    for option, key in names.items():
        if rule.HasField(option) and not (option == "min" and rule.min > 0 and not field.has_presence):
            schema[key] = getattr(rule, option)
            if schema[key] == int(schema[key]):
                schema[key] = int(schema[key])
    return schema


def reference(message, title):
    """A sweep's job has a schema of its own, beside that of sweeps."""
    return {"$ref": SCHEMA.name if message.name == "JobSpec" and title != JOB_TITLE else f"#/$defs/{message.name}"}


def field_schema(field, rule, message, title):
    if is_map(field):
        value = value_of(field)
        each = reference(value.message_type, title) if value.message_type else \
            {"type": "string"} if value.type == FieldProto.TYPE_STRING else scalar_schema(value, rule)
        return {"type": "object", **({"minProperties": 1} if rule.required else {}), "maxProperties": rule.max_items,
                "additionalProperties": each}
    if is_list(field) and field.message_type:
        return {"type": "array", "minItems": int(rule.required), "maxItems": rule.max_items,
                "items": reference(field.message_type, title)}
    if field.message_type:
        return reference(field.message_type, title)
    schema = scalar_schema(field, rule)
    if rule.format == rule.ARGUMENT and title != JOB_TITLE:  # the choices of a parameter may be numbers
        schema["type"] = ["string", "number", "boolean"]
    if is_list(field):
        return {"type": "array", "minItems": int(rule.required), "maxItems": rule.max_items, "items": schema}
    if rule.mapping:
        return {"anyOf": [schema, reference(message.fields_by_name[rule.mapping].message_type, title)]}
    if f"{field.name}_auto" in message.fields_by_name:
        return {"anyOf": [schema, {"const": "auto"}]}
    return schema


def default_value(field, rule):
    if not rule.default or field.message_type:
        return {}
    return {"default": rule.default if field.type == FieldProto.TYPE_STRING else json.loads(rule.default)}


def message_schema(message, options, title):
    lines = []
    for field in fields(message):
        rule = options.of(field)
        if mapped(field, options):
            continue
        schema = {**described(rule, field_schema(field, rule, message, title)), **default_value(field, rule)}
        lines.append(f"{json.dumps(field.name)}: {json.dumps(schema)}")
    required = [field for field in fields(message) if options.of(field).required]
    always = [field.name for field in required if not options.of(field).unless]
    either = {options.of(field).unless: [] for field in required if options.of(field).unless}
    for field in required:
        if options.of(field).unless:
            either[options.of(field).unless].append(field.name)
    ways = "".join(f'"oneOf": [{{"required": {json.dumps(names)}}}, {{"required": {json.dumps([other])}}}], '
                   for other, names in either.items())
    properties = '"type": "object", "additionalProperties": false, ' \
                 f'"required": {json.dumps(always)}, {ways}"properties": {{\n    ' + ",\n    ".join(lines) + "}"
    if not is_choice(message):
        return "{" + properties + "}"
    names = [field.name for field in members(message)]
    one = '"minProperties": 1, "maxProperties": 1'
    if len(names) < len(fields(message)):
        one = '"oneOf": [' + ", ".join(f'{{"required": [{json.dumps(name)}]}}' for name in names) + "]"
    return f'{{"anyOf": [{{"enum": {json.dumps(names)}}}, {{{one}, {properties}}}]}}'


def messages_of(message, found):
    if message.name not in found:
        found[message.name] = message
        for field in fields(message):
            inner = value_of(field).message_type if is_map(field) else field.message_type
            if inner and inner.name != "JobSpec":
                messages_of(inner, found)
    return found


def schema(message, options, title):
    definitions = [f"  {json.dumps(name)}: {message_schema(each, options, title)}"
                   for name, each in messages_of(message, {}).items()]
    return (f'{{"$schema": "http://json-schema.org/draft-07/schema#",\n "title": {json.dumps(title)},\n'
            f' "$ref": "#/$defs/{message.name}",\n "$defs": {{\n' + ",\n".join(definitions) + "\n}}\n")


def main():
    job, sweep, pool = load()
    options = Options(pool)
    wanted = {SCHEMA: schema(job, options, JOB_TITLE), SWEEP_SCHEMA: schema(sweep, options, "A sweep of Trainyard")}
    for path, message in ((PAGE, job), (SWEEP_PAGE, sweep)):
        before, rest = path.read_text().split(BEGIN)
        wanted[path] = before + table(message, options) + rest.split(END)[1]
    for path in (SCHEMA, SWEEP_SCHEMA):
        json.loads(wanted[path])
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if "--write" in sys.argv:
            path.write_text(wanted[path])
        else:
            print(f"{path.relative_to(ROOT)} is not what the protos give: run tests/lint/spec_fields.py --write")
    if not stale:
        print("ok - docs/spec.md, docs/sweep.md and the schemas of share agree with the protos")
    return 1 if stale and "--write" not in sys.argv else 0


sys.exit(main())
