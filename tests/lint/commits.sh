#!/bin/sh
# Fails on a commit whose subject is longer than 72 characters or does not begin with "area: " (CONTRIBUTING.md). The rule
# holds for commits after 6e5e496.
# Without git history, or in a shallow clone that lacks 6e5e496, nothing is checked.
cd "$(dirname "$0")/../.." || exit 2
since=6e5e496
if ! git merge-base --is-ancestor "$since" HEAD 2>/dev/null; then
  echo "ok - commit subjects # SKIP no history since $since"
  exit 0
fi
git log --no-merges --format='%h %s' "$since..HEAD" | LC_ALL=C.UTF-8 awk '
  {
    hash = $1; subject = substr($0, length($1) + 2)
    if (length(subject) > 72) { printf "%s: subject of %d characters (at most 72): %s\n", hash, length(subject), subject; bad = 1 }
    if (subject !~ /^[a-z][A-Za-z0-9_.\/, -]*: [^ ]/) { printf "%s: subject without \"area: \": %s\n", hash, subject; bad = 1 }
  }
  END { if (!bad) print "ok - commit subjects name their area and have at most 72 characters"; exit bad }'
