#!/bin/sh
# Fails if a table of docs/spec.md or docs/sweep.md, or a schema of share, differs from the options of the protos' fields.
exec /usr/bin/python3 "$(dirname "$0")/spec_fields.py" "$@"
