#!/usr/bin/env bash
# Ends the jobs and the daemons that start.sh started, and nothing else. With --wipe its state goes too.
set -uo pipefail
. "$(dirname "$0")/common.sh"

no_jobs() { [ -z "$(squeue -h -o %i)" ]; }

end_daemon() {
  if running "$1"; then
    kill -TERM "$pid"
    within 15 eval "! running $1" || kill -KILL "$pid"
  fi
  rm -f "$RUN/$1.started"
}

if running slurmctld; then # jobs first: what they started outlives a slurmd
  scancel --quiet --full --user=root
  within 15 no_jobs || { squeue -h -o %A | xargs -r scancel --quiet --full --signal=KILL; within 5 no_jobs; }
fi
for file in "$RUN"/slurmd-*.started; do
  [ -e "$file" ] && end_daemon "$(basename "$file" .started)"
done
for name in slurmctld slurmdbd mariadbd munged; do end_daemon $name; done
for group in "$FREEZER"/slurm_n*; do # empty once the jobs are gone
  [ -d "$group" ] && find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
done
if head -n 1 "$ETC/slurm.conf" 2>/dev/null | grep -q 'made by start.sh'; then
  rm -f "$ETC"/{slurm,slurmdbd,cgroup,gres}.conf
fi
if [ "${1:-}" = --wipe ]; then rm -rf "$STATE" "$LOGS" "$RUN"; fi
say "stopped"
