#!/usr/bin/env bash
# Starts a real Slurm on this host for the tests: munged, slurmctld, one slurmd for each node, and
# mariadbd with slurmdbd so that sacct works. Debian or Ubuntu, root; systemd is not needed. What runs
# already is left alone, and what has died is started again. Every port is bound to 127.0.0.1.
#
#   NODES=2           nodes n1, n2, ...
#   CPUS=4            CPUs of each; the host need not have them
#   MEMORY_MB=8000    memory of each
#   GPUS=1            GPUs of each: copies of /dev/null, which Slurm counts and hands out; 0 for none
#   ACCOUNTING=on     off: no database, and sacct says that accounting is disabled
#   KILL_WAIT_S=5     seconds between TERM and KILL at a job's end
#   NODE_DOWN_S=15    a node that is silent so long is down
#   REQUEUE_S=20      a requeued job waits so long before it may start again
set -euo pipefail
. "$(dirname "$0")/common.sh"

NODES=${NODES:-2} CPUS=${CPUS:-4} MEMORY_MB=${MEMORY_MB:-8000} GPUS=${GPUS:-1}
ACCOUNTING=${ACCOUNTING:-on} KILL_WAIT_S=${KILL_WAIT_S:-5} NODE_DOWN_S=${NODE_DOWN_S:-15}
REQUEUE_S=${REQUEUE_S:-20}
HOST=$(hostname -s)
SQL=(--no-defaults -uroot -S "$RUN/mysql/socket")

exec 9>"$RUN/lock"
flock 9 # two test runs may want the cluster at the same moment

install_packages() {
  local missing=() package policy=/usr/sbin/policy-rc.d
  local wanted=(munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins)
  [ "$ACCOUNTING" = off ] || wanted+=(slurmdbd mariadb-server)
  for package in "${wanted[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "missing ${missing[*]}, and there is no apt-get"
  say "installing ${missing[*]}"
  # No package may start a service of its own.
  [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod 755 "$policy"; trap "rm -f $policy" EXIT; }
  { apt-get -o DPkg::Lock::Timeout=600 update &&
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}"; } \
    >"$LOGS/apt.log" 2>&1 9>&- || { tail -n 20 "$LOGS/apt.log"; die "apt failed"; }
}

# launch NAME COMMAND...: start a daemon unless it runs.
launch() {
  local name=$1 pid
  shift
  running "$name" && return 0
  setsid "$@" </dev/null >>"$LOGS/$name.out" 2>&1 9>&- &
  pid=$!
  sleep 0.1
  echo "$pid $(started_at $pid)" >"$RUN/$name.started"
}

start_munge() {
  munge -n 2>/dev/null | unmunge >/dev/null 2>&1 && return 0
  install -d -o munge -g munge -m 755 /run/munge
  [ -s /etc/munge/munge.key ] || {
    (umask 077 && head -c 1024 /dev/urandom >/etc/munge/munge.key)
    chown munge:munge /etc/munge/munge.key
  }
  launch munged setpriv --reuid=munge --regid=munge --init-groups munged --foreground --num-threads=2
  within 10 sh -c 'munge -n | unmunge' || die "munged does not answer, see $LOGS/munged.out"
}

# Sites run proctrack/cgroup: signals reach a job's tasks and not their children, and whatever a job
# leaves behind is killed when it ends. Slurm 22.05 needs the freezer of cgroup v1 for it here.
choose_tracking() {
  TRACKING=linuxproc
  mkdir "$FREEZER/.probe" 2>/dev/null || return 0
  rmdir "$FREEZER/.probe"
  TRACKING=cgroup
  printf '%s\n' CgroupPlugin=cgroup/v1 CgroupMountpoint=/sys/fs/cgroup \
    ConstrainCores=no ConstrainRAMSpace=no ConstrainDevices=no >"$ETC/cgroup.conf"
}

slurm_conf() {
  cat <<C
# made by start.sh
ClusterName=test
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=$REQUEUE_S
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
ProctrackType=proctrack/$TRACKING
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=$((MEMORY_MB / CPUS))
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=5,batch_sched_delay=1
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
# With 2 a node that was set down by hand would come back at once.
ReturnToService=1
KillWait=$KILL_WAIT_S
SlurmdTimeout=$NODE_DOWN_S
SlurmctldTimeout=30
MinJobAge=600
JobRequeue=1
SlurmctldPidFile=$RUN/slurmctld.pid
SlurmdPidFile=$RUN/slurmd-%n.pid
StateSaveLocation=$STATE/slurmctld
SlurmdSpoolDir=$STATE/slurmd-%n
SlurmctldLogFile=$LOGS/slurmctld.log
SlurmdLogFile=$LOGS/slurmd-%n.log
C
  [ "$GPUS" -eq 0 ] || echo GresTypes=gpu
  if [ "$ACCOUNTING" = off ]; then
    echo AccountingStorageType=accounting_storage/none
  else
    printf '%s\n' AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=127.0.0.1 AccountingStoragePort=16819
    [ "$GPUS" -eq 0 ] || echo AccountingStorageTRES=gres/gpu
  fi
  local gres=
  [ "$GPUS" -eq 0 ] || gres=" Gres=gpu:$GPUS"
  echo "NodeName=DEFAULT CPUs=$CPUS RealMemory=$MEMORY_MB State=UNKNOWN$gres"
  local n
  for n in $(seq "$NODES"); do echo "NodeName=n$n NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((17000 + n))"; done
  echo "PartitionName=batch Nodes=ALL Default=YES DefaultTime=10 MaxTime=INFINITE State=UP"
  echo "PartitionName=short Nodes=n1 DefaultTime=5 MaxTime=10 MaxNodes=1 State=UP"
}

configure() {
  local file=$ETC/slurm.conf
  if [ -e "$file" ] && ! head -n 1 "$file" | grep -q 'made by start.sh'; then
    die "$file belongs to another Slurm; this host is no place for a test cluster"
  fi
  grep -qE "^127\..*[[:space:]]$HOST([[:space:]]|\$)" /etc/hosts || echo "127.0.0.1 $HOST" >>/etc/hosts
  choose_tracking
  slurm_conf >"$file.new"
  mv "$file.new" "$file"
  rm -f "$ETC/gres.conf"
  [ "$GPUS" -gt 0 ] || return 0
  # Slurm demands device nodes.
  mkdir -p "$STATE/dev"
  local g
  for g in $(seq 0 $((GPUS - 1))); do
    [ -c "$STATE/dev/gpu$g" ] || mknod -m 666 "$STATE/dev/gpu$g" c 1 3
    echo "NodeName=n[1-$NODES] Name=gpu File=$STATE/dev/gpu$g" >>"$ETC/gres.conf"
  done
}

start_database() {
  running mariadbd && return 0
  if [ ! -d "$STATE/mysql/mysql" ]; then
    install -d -o mysql -g mysql -m 700 "$STATE/mysql"
    mariadb-install-db --no-defaults --user=mysql --datadir="$STATE/mysql" --skip-test-db \
      --innodb-log-file-size=16M --auth-root-authentication-method=normal >"$LOGS/mariadb-install.log" 2>&1 ||
      die "no database, see $LOGS/mariadb-install.log"
  fi
  install -d -o mysql -g mysql -m 755 "$RUN/mysql"
  launch mariadbd mariadbd --no-defaults --user=mysql --datadir="$STATE/mysql" --socket="$RUN/mysql/socket" \
    --pid-file="$RUN/mysql/pid" --bind-address=127.0.0.1 --port=16806 --skip-log-bin --performance-schema=0 \
    --innodb-buffer-pool-size=64M --innodb-log-file-size=16M --innodb-lock-wait-timeout=900 \
    --innodb-flush-log-at-trx-commit=0
  within 60 mariadb-admin "${SQL[@]}" ping || die "mariadbd does not answer, see $LOGS/mariadbd.out"
  mariadb "${SQL[@]}" -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db;
    CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
    CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED BY 'slurm';
    GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1', 'slurm'@'localhost';"
}

start_accounting() {
  start_database
  (umask 077 && cat >"$ETC/slurmdbd.conf" <<C
AuthType=auth/munge
CommunicationParameters=NoInAddrAny
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=16819
SlurmUser=root
LogFile=$LOGS/slurmdbd.log
PidFile=$RUN/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=16806
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
C
  )
  chmod 600 "$ETC/slurmdbd.conf"
  launch slurmdbd slurmdbd -D
  within 60 sacctmgr -n show cluster || die "slurmdbd does not answer, see $LOGS/slurmdbd.log"
  sacctmgr -n show cluster format=cluster%20 | grep -qw test || sacctmgr -i add cluster test >/dev/null
}

nodes_up() { [ "$(sinfo -hN -p batch -o %T | grep -cxE 'idle|mixed|allocated|completing')" -eq "$NODES" ]; }

start_slurm() {
  local n
  launch slurmctld slurmctld -D
  within 30 sh -c 'scontrol ping | grep -q "is UP"' || die "slurmctld does not answer, see $LOGS/slurmctld.log"
  for n in $(seq "$NODES"); do
    mkdir -p "$STATE/slurmd-n$n"
    launch "slurmd-n$n" slurmd -D -N "n$n"
  done
  within 2 nodes_up && return 0
  for n in $(sinfo -hN -p batch -o '%N %T' | awk '$2 ~ /^(down|drain)/ { print $1 }'); do
    scontrol update nodename="$n" state=resume || true
  done
  within 60 nodes_up || { sinfo -Nl; die "not every node came up, see $LOGS"; }
}

mkdir -p "$LOGS"
install_packages
mkdir -p "$ETC" "$STATE/slurmctld"
configure
start_munge
[ "$ACCOUNTING" = off ] || start_accounting
start_slurm
say "up: $(sinfo -h -p batch -o '%D nodes %N, %c CPUs and %G each')"
