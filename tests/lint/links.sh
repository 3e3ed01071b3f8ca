#!/bin/sh
# Fails on a relative link in Markdown whose file does not exist, and on a path of a source file in docs/ARCHITECTURE.md or
# CONTRIBUTING.md that does not exist. Names with capitals (NAME, NOUN, SERVICE) are placeholders.
cd "$(dirname "$0")/../.." || exit 2
bad=0
for page in $(git ls-files '*.md'); do
  for link in $(grep -oE '\]\([^)#: ]+[)#]' "$page" | sed -E 's/^..//; s/.$//'); do
    [ -e "$(dirname "$page")/$link" ] || { echo "$page: no file $link"; bad=1; }
  done
done
for page in docs/ARCHITECTURE.md CONTRIBUTING.md; do
  for path in $(grep -oE '(api|base|cli|engine|executor|kernels|service|tests)/[A-Za-z0-9_/{}.,*-]+\.([a-z]+|[{][a-z,]+[}])' "$page" | grep -v '[A-Z]' | sort -u); do
    for file in $(bash -c "echo $path"); do
      [ -e "$file" ] || { echo "$page: no file $file"; bad=1; }
    done
  done
done
[ $bad -eq 0 ] && echo "ok - links and paths in Markdown lead to files"
exit $bad
