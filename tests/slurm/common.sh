# What start.sh, stop.sh and kill_node.sh share: where things lie, and who was started.
# A daemon is known by its pid and its start time, so that a pid used again is never signalled.
ETC=/etc/slurm
STATE=/var/lib/batchgate-slurm
LOGS=/var/log/batchgate-slurm
RUN=/run/batchgate-slurm
FREEZER=/sys/fs/cgroup/freezer

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*"; }
die() { say "$*" >&2; exit 1; }

started_at() { awk '$3 != "Z" { print $22 }' "/proc/$1/stat" 2>/dev/null || true; }

# running NAME: whether the daemon recorded under NAME is alive; leaves its pid in $pid.
running() {
  local then
  [ -s "$RUN/$1.started" ] || return 1
  read -r pid then <"$RUN/$1.started"
  [ -n "$then" ] && [ "$(started_at "$pid")" = "$then" ]
}

# within SECONDS COMMAND...: run it until it succeeds.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

[ "$(id -u)" -eq 0 ] || die "needs root"
mkdir -p "$RUN"
