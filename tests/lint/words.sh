#!/bin/sh
# Fails on unfinished work by its own words, names that say nothing, and a README missing from a folder.
cd "$(dirname "$0")/../.." || exit 2
bad=0
git grep -nwE 'TODO|FIXME|XXX|HACK' -- '*.c' '*.h' '*.cc' '*.cu' '*.sql' '*.proto' '*.py' dev && bad=1
git ls-files | grep -E '(^|/)(util|utils|common|misc|helper|helpers)(\.|/)' && bad=1
for dir in $( (git ls-files '*.c' '*.cc' '*.cu' '*.sql' '*.proto' '*.cmake' | xargs -n1 dirname; git ls-files | grep / | cut -d/ -f1 | grep -v '^\.') | sort -u); do
  case $dir in
    tests/unit|tests/store|tests/rpc|tests/fuzz|tests/*/*|bench/*|api/trainyard|api/trainyard/*|api/grpc/*|api/google/*|api/tensorflow) ;; # their parents' READMEs speak for them
    docs) ;; # is pages
    *) [ -f "$dir/README.md" ] || { echo "$dir has no README.md"; bad=1; } ;;
  esac
done
[ $bad -eq 0 ] && echo "ok - nothing is unfinished by its own words, every folder has a README"
exit $bad
