#!/bin/sh
# Fails if an identifier or a file name of the product code contains a word of the table "Retired words" of
# docs/GLOSSARY.md as a whole part (told, tell_after_ms, TELL_AFTER_MS). "in_flight" is not a retired word.
#
# Comments and texts are removed first. Names in camel case (protobuf messages) are not split. The names of the API in
# api_names may stay: clients see them in JSON and in generated code, so that renaming them would break clients.
cd "$(dirname "$0")/../.." || exit 2
api_names='AWAY HELD LONE Verdict VERDICT_UNSPECIFIED verdict most_bytes'

# "prepend, correct, widen (ops)" -> prepend correct widen; a phrase such as "shut memory" -> shut_memory.
words=$(sed -n '/^## Retired words/,$p' docs/GLOSSARY.md | sed -nE 's/^\| ([^|]*) \|.*/\1/p' | grep -v '^do not use\|^---' |
  sed -E 's/ \([^)]*\)//; s/, /\n/g' | tr ' ' '_')

git ls-files api base cli engine executor kernels service | grep -E '\.(c|h|cc|cu|cuh|proto)$' |
  xargs awk -v words="$words" -v api_names="$api_names" '
  BEGIN {
    n = split(words, word, "\n")
    for (i = 1; i <= n; i++) retired[word[i]] = 1
    n = split(api_names, word, " ")
    for (i = 1; i <= n; i++) api[word[i]] = 1
    api_member = "(->|[.])(" api_names ")[^A-Za-z0-9_]"
    gsub(/ /, "|", api_member)
  }
  function check(name,    id, w) {
    if (name == "" || name in seen || (proto && name in api) || tolower(name) ~ /^trainyard__v1__/) return
    seen[name] = 1
    id = "_" tolower(name) "_"
    gsub(/[.]/, "_", id); gsub(/_in_flight_/, "_", id)
    for (w in retired)
      if (index(id, "_" w "_")) { printf "%s: %s contains the retired word %s\n", FILENAME, name, w; bad = 1 }
  }
  FNR == 1 {
    comment = 0; proto = FILENAME ~ /^api\/trainyard\/v1\//
    file = FILENAME; sub(/.*\//, "", file); check(file)
  }
  {
    line = $0
    if (comment) { if (!sub(/^.*\*\//, "", line)) next; comment = 0 }
    gsub(/"([^"\\]|\\.)*"/, "", line); gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, " ", line); sub(/\/\/.*/, "", line)
    if (sub(/\/\*.*/, "", line)) comment = 1
    gsub(api_member, " ", line)
    m = split(line, name, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= m; i++) check(name[i])
  }
  END { if (!bad) print "ok - no name contains a retired word of the glossary"; exit bad }'
