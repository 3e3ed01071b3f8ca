#!/bin/sh
# Fails on a line of Markdown with more than 120 columns. A row of a table may be longer, because it cannot be wrapped.
cd "$(dirname "$0")/../.." || exit 2
if git ls-files '*.md' | LC_ALL=C.UTF-8 xargs grep -nE '^[^|].{120}' | sed -E 's/^([^:]*:[0-9]+):.*/\1: more than 120 columns/' | grep .; then
  exit 1
fi
echo "ok - no line of Markdown has more than 120 columns, except rows of tables"
