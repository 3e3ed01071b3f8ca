#!/bin/sh
# Fails on a new cycle between the source files of a folder. One file depends on another if it uses a function that the
# other defines; a cycle is a set of files of which each depends, perhaps through others, on every other. A file in a cycle
# cannot be understood, tested or moved alone.
#
# The table lists the cycles that are tolerated, FOLDER: FILE..., each with its reason. A file that has left its cycle
# causes a warning: remove it from the table.
#
# Algorithm: awk collects the names of all non-static functions (a definition begins at column 0 and does not end in ";"),
# then the names that each file of the same folder calls. Two files are in one cycle if each reaches the other.
cd "$(dirname "$0")/../.." || exit 2
tolerated=$(mktemp) || exit 2
trap 'rm -f "$tolerated"' EXIT
cat >"$tolerated" <<'TABLE'
# One state machine per call, in four files; one check before a call is accepted; services of every server.
api/rpc: call.c receive.c send.c work.c
api/rpc: accept.c admit.c
api/rpc: health.c reflection.c server.c
# spec.c runs the rules, and the rules use its queries of a spec.
api/spec: rules.c rules_data.c rules_fields.c rules_layout.c rules_mixture.c rules_model.c rules_program.c rules_train.c spec.c
# The dispatcher of a group of files contains a helper that they share.
executor/worker: check.c check_data.c check_folder.c check_origin.c
executor/worker: train_command.c train_main.c
kernels/cpu: convolution.c convolution_1x1.c
# A recovery ends when the leadership has ended.
service/controller: leadership.c recover.c
# One state machine over one struct; it is pure, and simulated as a whole.
service/scheduler: attempt.c avoid.c drain.c elastic.c executor.c job.c lacking.c pause.c queue.c attempt_close.c capacity.c
TABLE

git ls-files '*.c' '*.cc' '*.cu' | grep -vE '^(tests|bench)/' | xargs awk -v tolerated="$tolerated" '
  function folder_of(file) { sub(/\/[^\/]*$/, "", file); return file }
  function name_of(file) { sub(/.*\//, "", file); return file }
  # Comments and texts hold no uses.
  { line = $0; gsub(/"([^"\\]|\\.)*"/, "", line); sub(/\/\/.*/, "", line); gsub(/\/\*[^*]*\*\//, "", line)
    gsub(/(\.|->)[a-z_0-9]+\(/, "(", line) } # a call through a member is no use of a name
  line ~ /^\/\*/ || line ~ /^ \*/ { next }
  { text[FILENAME] = text[FILENAME] " " line }
  /^static / && /\(/ { name = line; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name); own[FILENAME, name] = 1 }
  /^[A-Za-z_]/ && /\(/ && !/^(static|typedef|struct [A-Za-z_0-9]+ \{|enum|#|TEST)/ && !/;[ \t]*$/ {
    name = line; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
    if (name != "" && name !~ /^(_|if$|for$|while$|switch$|return$|extern$)/) owner[folder_of(FILENAME) "/" name] = FILENAME
  }
  END {
    for (file in text) {
      folder = folder_of(file)
      gsub(/\(/, " ( ", text[file]); gsub(/[^A-Za-z0-9_(]+/, " ", text[file]) # a use is a name before "("
      n = split(text[file], word, " ")
      for (i = 1; i < n; i++) {
        if (word[i + 1] != "(" || ((file, word[i]) in own)) continue
        other = owner[folder "/" word[i]]
        if (other != "" && other != file && !((file, other) in edge)) { edge[file, other] = 1; next_of[file] = next_of[file] " " other }
      }
    }
    for (file in text) { # the files that each one reaches
      top = split(next_of[file], stack, " ")
      while (top > 0) {
        other = stack[top--]
        if ((file, other) in reach) continue
        reach[file, other] = 1
        n = split(next_of[other], more, " ")
        for (i = 1; i <= n; i++) stack[++top] = more[i]
      }
    }
    while ((getline line < tolerated) > 0) {
      if (line ~ /^#/) continue
      n = split(line, word, " "); folder = word[1]; sub(/:$/, "", folder)
      for (i = 2; i <= n; i++) listed[folder "/" word[i]] = line
    }
    for (file in text) {
      if (!((file, file) in reach)) continue
      in_cycle[file] = 1
      for (other in text)
        if (other != file && ((file, other) in reach) && ((other, file) in reach)) {
          partner[file] = partner[file] " " name_of(other)
          if (listed[file] == "" || listed[file] != listed[other]) wrong[file] = 1
        }
    }
    for (file in wrong) { printf "%s: new cycle with%s\n", file, partner[file]; bad = 1 }
    for (file in listed)
      if (!(file in in_cycle)) printf "warning: %s is in no cycle: remove it from the table of tests/lint/cycles.sh\n", file
    if (!bad) print "ok - no new cycle between the files of a folder"
    exit bad
  }'
