#!/bin/sh
# Fails if the table in docs/spec.md or share/spec.schema.json differs from the options of spec.proto's fields.
exec /usr/bin/python3 "$(dirname "$0")/spec_fields.py" "$@"
