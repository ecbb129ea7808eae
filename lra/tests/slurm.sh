#!/bin/sh
# Tries the jobs that `lra sweep --emit slurm` writes with a real Slurm on this one machine: an array, and a job that a more
# urgent one preempts.
# Needs root and Debian's packages: apt-get install slurm-wlm munge.  Usage: lra/tests/slurm.sh path/to/lra
# Everything but the packages' own state lies in a temporary folder; the daemons it starts are stopped at the end.
set -eu

lra=$(realpath "$1")
place=$(mktemp -d)
host=$(hostname -s)
daemons=""

finish() {
    code=$?
    for pid in $daemons; do kill "$pid" 2>/dev/null || true; done
    wait
    if [ "$code" -ne 0 ]; then
        tail -n 20 "$place"/*.log 2>/dev/null || true
    fi
    rm -rf "$place"
    exit "$code"
}
trap finish EXIT

chmod 755 "$place"
mkdir "$place/munge" "$place/state" "$place/spool" "$place/work"
chmod 711 "$place/munge"

# A key and a daemon of our own, so that an installed munge is left alone.
dd if=/dev/urandom of="$place/munge/key" bs=1024 count=1 2>/dev/null
chmod 400 "$place/munge/key"
munged --foreground --force --num-threads=2 --key-file="$place/munge/key" --socket="$place/munge/socket" \
    --pid-file="$place/munge/pid" --log-file="$place/munge/log" --seed-file="$place/munge/seed" \
    > "$place/munged.log" 2>&1 &
daemons="$daemons $!"

cat > "$place/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$place/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmctldPort=46817
SlurmdPort=46818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=0
PartitionName=urgent Nodes=$host MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
CONF
export SLURM_CONF="$place/slurm.conf"
slurmctld -D > "$place/slurmctld.log" 2>&1 &
daemons="$daemons $!"
slurmd -D > "$place/slurmd.log" 2>&1 &
daemons="$daemons $!"

tries=0
until sinfo --noheader --format=%T 2>/dev/null | grep -q idle; do
    tries=$((tries + 1))
    if [ "$tries" -gt 60 ]; then
        echo "Slurm did not start" >&2
        exit 1
    fi
    sleep 1
done

cd "$place/work"
export LRA_DATA="$place/data"
"$lra" sweep --tasks toy --models bag,linear --seeds 0..3 --recipe smoke --steps 4 --threads 1 \
    --emit slurm --array 3 > job.sh
sbatch --wait job.sh

records=$(find runs -name record.json | wc -l)
if [ "$records" -ne 6 ]; then
    echo "$records records instead of 6" >&2
    cat lra-sweep-*.log >&2
    exit 1
fi
"$lra" report runs --table accuracy
echo "slurm: an array of 3 elements made the 6 cells of the sweep"

# Half a minute of training, and once it has begun a job that wants the whole node.
steps=20000
"$lra" sweep --tasks toy --models linear --seeds 0 --recipe smoke --steps $steps --threads 1 --out preempted \
    --emit slurm > job.sh
job=$(sbatch --parsable job.sh)
tries=0
until grep -qs '"step"' preempted/*/metrics.jsonl; do
    tries=$((tries + 1))
    if [ "$tries" -gt 60 ]; then
        echo "the job that is to be preempted did not begin" >&2
        exit 1
    fi
    sleep 1
done
sbatch --wait --partition=urgent --exclusive --output=urgent.log --wrap="date"
until [ -z "$(squeue --noheader --jobs="$job" 2>/dev/null)" ]; do
    sleep 1
done

restarts=$(scontrol show job "${job}_1" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p')
resumed=$(sed -n 's/^resuming after step //p' preempted/*/log.txt | tail -n 1)
if [ ! -s "$(echo preempted/*/record.json)" ] || [ "$restarts" -lt 1 ] || [ "${resumed:-0}" -lt 1 ]; then
    echo "no record of a job that went on: $restarts restarts, resumed after step ${resumed:-none}" >&2
    cat lra-sweep-"$job"-1.log >&2
    exit 1
fi
"$lra" report preempted --table accuracy
echo "slurm: a job preempted $restarts time(s) went on after step $resumed to its $steps steps"
