#!/bin/sh
# Fails on markers of unfinished work, on file names without a meaning, on versions of packages outside of ./dev, and on a
# top-level folder without a README. Other folders have one only if it says what the headers cannot.
cd "$(dirname "$0")/../.." || exit 2
bad=0
git grep -nwE 'TODO|FIXME|XXX|HACK' -- '*.c' '*.h' '*.cc' '*.cu' '*.sql' '*.proto' '*.py' dev && bad=1
git ls-files | grep -E '(^|/)(util|utils|common|misc|helper|helpers)(\.|/)' && bad=1
git grep -nE '(clang|clang-format|clang-tidy|clang-rt|postgresql|libomp)-[0-9]' -- . ':!dev' ':!tests/lint' && bad=1
for dir in $(git ls-files | grep / | cut -d/ -f1 | grep -v '^\.' | sort -u); do
  [ "$dir" = docs ] || [ -f "$dir/README.md" ] || { echo "$dir has no README.md"; bad=1; }
done
[ $bad -eq 0 ] && echo "ok - no marker of unfinished work, every top-level folder has a README"
exit $bad
