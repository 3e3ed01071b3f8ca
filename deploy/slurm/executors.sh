#!/usr/bin/env bash
# Trainyard executors in an allocation of Slurm, one on each of its nodes: sbatch -N 8 deploy/slurm/executors.sh
# docs/slurm.md describes the variables that this script reads. Options of sbatch replace those of the next lines.
#
# Slurm sends SIGUSR1 to this script alone before the time limit. The script passes it on to the executors, which drain:
# their jobs write checkpoints and continue elsewhere or in the next allocation. The script ends when they have ended.
#SBATCH --job-name=trainyard
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
set -euo pipefail

# The status of a child that ends. A signal for which there is a trap ends `wait`, but not the child.
await() {
  local status=0
  while kill -0 "$1" 2>/dev/null; do
    wait "$1" || true
  done
  wait "$1" || status=$?
  return "$status"
}

# Keeps an executor on one node until a signal asks it to end.
node_run() {
  local directory=$TRAINYARD_DIRECTORY/$SLURMD_NODENAME address mib reserve started failures=0 status pid=
  local -a options=(--controller "$TRAINYARD_CONTROLLER" --directory "$directory" --cores "$SLURM_CPUS_ON_NODE")
  mkdir -p "$directory"
  address=$(scontrol show node --oneliner "$SLURMD_NODENAME" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  options+=(--address "${address:-$SLURMD_NODENAME}" --checkpoint-root "$TRAINYARD_CHECKPOINT_ROOT")
  [ -z "${TRAINYARD_CA:-}" ] ||
    options+=(--tls-ca "$TRAINYARD_CA" --tls-cert "$TRAINYARD_CERT" --tls-key "$TRAINYARD_KEY")
  # The memory of the allocation, less a part for the executor itself and for buffers of files: as much as the
  # executor's own default. Without a number, the node's memory or that of the control group counts.
  mib=${SLURM_MEM_PER_NODE:-$((${SLURM_MEM_PER_CPU:-0} * SLURM_CPUS_ON_NODE))}
  if [ "$mib" -gt 0 ]; then
    reserve=$((mib / 16))
    reserve=$((reserve < 512 ? 512 : reserve > 8192 ? 8192 : reserve))
    options+=(--memory-mib $((mib - (reserve > mib / 2 ? mib / 2 : reserve))))
  fi
  trap '[ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null || true' TERM
  while :; do
    started=$SECONDS status=0
    # shellcheck disable=SC2086 # the options are words
    setsid -- "${TRAINYARD_EXECUTOR:-trainyard-executor}" "${options[@]}" ${TRAINYARD_OPTIONS:-} &
    pid=$!
    echo "$pid" >"$directory/slurm.pid"
    await "$pid" || status=$?
    rm -f "$directory/slurm.pid"
    [ "$status" -ne 0 ] || return 0
    [ "$status" -ne 2 ] || return 2 # a wrong command line stays wrong
    failures=$((SECONDS - started < 60 ? failures + 1 : 1))
    echo "executors.sh: the executor of $SLURMD_NODENAME ended with status $status" >&2
    [ "$failures" -lt 5 ] || return "$status"
    sleep 2
  done
}

node_drain() {
  local pid
  pid=$(cat "$TRAINYARD_DIRECTORY/$SLURMD_NODENAME/slurm.pid" 2>/dev/null) || return 0 # it has ended
  kill -USR1 "$pid"
}

# on_nodes FUNCTION [option]...: runs a function of this script on every node of the allocation.
on_nodes() {
  local function=$1
  shift
  srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    --kill-on-bad-exit=0 --wait=0 --cpu-bind=none --overlap "$@" \
    bash -euo pipefail -c "$(declare -f await "$function"); $function"
}

drain() {
  echo "executors.sh: draining" >&2
  on_nodes node_drain --quiet || true # of a node that has failed, or an executor that has just ended
}

: "${TRAINYARD_CONTROLLER:?is the address of the controller, host:port}"
: "${TRAINYARD_CHECKPOINT_ROOT:?is the directory of checkpoints, which all nodes and the controller share}"
: "${TRAINYARD_DIRECTORY:?is a directory for the state of the executors, one folder for each node}"
: "${SLURM_JOB_NUM_NODES:?is set by Slurm: start this script with sbatch}"
export TRAINYARD_DIRECTORY
trap drain USR1
on_nodes node_run &
status=0
await $! || status=$?
if [ "${TRAINYARD_REQUEUE:-0}" = 1 ] && [ "$status" -eq 0 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
