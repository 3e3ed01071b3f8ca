#!/bin/sh
# Fails on a line with more than 120 columns (clang-format does not wrap comments), a function with more than 120 lines
# or a file with more than 1,500. Warns about functions over 60 and files over 800. A function runs from a line at column
# 0 that contains "(" and does not end in ";" to the next "}" at column 0, which is accurate enough.
cd "$(dirname "$0")/../.." || exit 2
git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.proto' | xargs awk '
  function file_end() {
    if (lines > 1500) { printf "%s: %d lines (at most 1500)\n", name, lines; bad = 1 }
    else if (lines > 800) printf "warning: %s: %d lines\n", name, lines
  }
  FNR == 1 { if (name) file_end(); name = FILENAME; start = 0 }
  { lines = FNR }
  length($0) > 120 { printf "%s:%d: %d columns (at most 120)\n", FILENAME, FNR, length($0); bad = 1 }
  /^[A-Za-z_].*\(/ && !/;[ \t]*$/ { start = FNR; head = $0 }
  /^}/ && start {
    n = FNR - start + 1
    if (n > 120) { printf "%s:%d: %d lines (at most 120): %s\n", FILENAME, start, n, substr(head, 1, 70); bad = 1 }
    else if (n > 60) printf "warning: %s:%d: %d lines: %s\n", FILENAME, start, n, substr(head, 1, 70)
    start = 0
  }
  END { file_end(); if (!bad) print "ok - no line over 120 columns, no function over 120 lines, no file over 1500"; exit bad }'
