#!/bin/sh
# Fails on an include that the table of docs/ARCHITECTURE.md forbids, on a cycle between the folders of service/, and on a
# foreign header outside its folder. One line per folder: FOLDER ALLOWED... (a folder may always include its own headers).
# Prints file:line of each offence.
cd "$(dirname "$0")/../.." || exit 2
bad=0

while read -r dir allow; do
  [ -d "$dir" ] || { echo "tests/lint/layers.sh: no folder $dir"; bad=1; continue; }
  re=$(printf '%s' "$dir $allow" | tr ' ' '|')
  grep -rnE '^ *# *include "' "$dir" --include='*.[ch]' --include='*.cc' --include='*.cu' --include='*.cuh' |
    grep -vE "include \"($re)/" && bad=1
done <<'TABLE'
base
kernels base
engine/model engine kernels base
engine/graph engine kernels base
engine/optimizer engine/graph engine/data kernels base
engine/plan engine/graph engine/model engine/optimizer engine/plan kernels base
engine/pretrained engine/checkpoint engine/model engine/graph engine/data kernels base
engine/run engine kernels base
engine/collective kernels base
engine/checkpoint base
engine/data kernels base
executor/child api/codec base
executor/sandbox base
executor/container base
executor/worker executor/child executor/sandbox engine kernels api/codec api/spec base
executor/agent executor/sandbox executor/container api base
executor/program executor/child executor/worker executor/sandbox executor/container tracking api/code api/codec base
executor/program/tracking tracking base
tracking base
executor/code executor/child api base
executor/image base
executor/environment executor/child executor/worker executor/sandbox executor/image api base
executor/data executor/child api base
executor/agent/core base
api/code base
api/codec base
api/spec api/code api/codec base
api/rpc base
api/http base
service/store base
service/scheduler base
service/notify service/store api/codec base
service/controller service/scheduler service/notify service/store api base
service/rpc service/controller service/scheduler service/store api base
service/http service/controller service/notify service/store api base
service/main service/controller service/rpc service/http service/store web/server api base
web/server api base
cli web/server tracking api base
TABLE

# No cycle between the folders of service/, even if the table allows each include: tsort(1) prints its members.
if ! cycle=$(grep -roE '^ *# *include "service/[a-z]+/' service --include='*.[ch]' |
    sed -nE 's,^(service/[a-z]+)/[^:]*:.*"(service/[a-z]+)/$,\1 \2,p' | sort -u | tsort 2>&1 >/dev/null); then
  echo "$cycle" | sed 's/^tsort: -: /cycle: /;s/^tsort: /cycle: /'
  bad=1
fi

# engine/plan: the files at the top of the folder are queries, which use none of its folders. cost may use build and
# verify; build and verify use neither each other nor cost.
while read -r files refused; do
  grep -nE "^ *# *include \"engine/plan/($refused)/" $files && bad=1
done <<'TABLE'
engine/plan/*.[ch] build|verify|cost
engine/plan/build/*.[ch] verify|cost
engine/plan/verify/*.[ch] build|cost
TABLE

# Foreign headers, and the folders that may include them.
while read -r header folders; do
  grep -rnE "^ *# *include <$header" base api kernels engine executor service tracking web cli --include='*.[ch]' --include='*.cc' --include='*.cu' --include='*.cuh' |
    grep -vE "^($folders)/" && bad=1
done <<'TABLE'
grpc/ api/rpc
libpq-fe.h service/store
gloo/ engine/collective
dnnl kernels
cuda kernels/cuda|engine/collective
cublasLt kernels/cuda
cudnn kernels/cuda
nccl engine/collective
microhttpd.h api/http|executor/program/tracking
archive cli|engine/data|executor/code|executor/image
seccomp.h executor/sandbox
sqlite3.h cli
yaml.h api/codec|executor/container
curl/ service/notify|executor/data
expat.h executor/data
TABLE

[ $bad -eq 0 ] && echo "ok - every include follows the table"
exit $bad
