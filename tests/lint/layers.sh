#!/bin/sh
# Fails on an include that points against docs/ARCHITECTURE.md's may-use table, and on a foreign header outside its room.
# One line per folder: FOLDER ALLOWED... (a folder may always use itself). Prints file:line of each offence.
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
executor/engine/model executor/engine kernels base
executor/engine/graph executor/engine kernels base
executor/engine/optimizer executor/engine/graph executor/engine/data kernels base
executor/engine/plan executor/engine/graph executor/engine/model executor/engine/optimizer executor/engine/plan kernels base
executor/engine/pretrained executor/engine/checkpoint executor/engine/model executor/engine/graph executor/engine/data kernels base
executor/engine/run executor/engine kernels base
executor/engine/collective kernels base
executor/engine/checkpoint base
executor/engine/data kernels base
executor/worker executor/engine kernels api/codec api/spec base
executor/agent api base
api/codec base
api/spec api/codec base
api/rpc base
service/store base
service/scheduler base
service/controller service/scheduler service/store api base
service/rpc service/controller service/scheduler service/store api base
service/http service/controller service/store api base
service/main service/controller service/rpc service/http service/store api base
cli api base
TABLE

# No circle between the folders of service/, whatever the table allows: tsort(1) names those on one.
if ! circle=$(grep -roE '^ *# *include "service/[a-z]+/' service --include='*.[ch]' |
    sed -nE 's,^(service/[a-z]+)/[^:]*:.*"(service/[a-z]+)/$,\1 \2,p' | sort -u | tsort 2>&1 >/dev/null); then
  echo "$circle" | sed 's/^tsort: -: /circle: /;s/^tsort: /circle: /'
  bad=1
fi

# Foreign headers that belong to one room.
while read -r header rooms; do
  grep -rnE "^ *# *include <$header" base api kernels executor service cli --include='*.[ch]' --include='*.cc' --include='*.cu' --include='*.cuh' |
    grep -vE "^($rooms)/" && bad=1
done <<'TABLE'
grpc/ api/rpc
libpq-fe.h service/store
gloo/ executor/engine/collective
dnnl kernels
cuda kernels/cuda|executor/engine/collective
cublasLt kernels/cuda
cudnn kernels/cuda
nccl executor/engine/collective
microhttpd.h service/http
yaml.h api/codec
TABLE

[ $bad -eq 0 ] && echo "ok - every include follows the table"
exit $bad
