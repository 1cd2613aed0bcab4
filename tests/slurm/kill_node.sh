#!/usr/bin/env bash
# kill_node.sh n2: the node loses its power. Its slurmd, the slurmstepd of its jobs and all their
# processes get KILL, with no word to Slurm. start.sh brings it back. Needs proctrack/cgroup.
set -uo pipefail
. "$(dirname "$0")/common.sh"

node=${1:?usage: kill_node.sh NODE}
[ -d "$FREEZER" ] || die "the processes of a node are found by the freezer of cgroup v1, which is not here"
running "slurmd-$node" && kill -KILL "$pid"
for _ in $(seq 20); do # a fork may slip past one round
  pids=$(find "$FREEZER/slurm_$node" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -un)
  [ -n "$pids" ] || break
  kill -KILL $pids 2>/dev/null
  sleep 0.1
done
say "$node is dead"
