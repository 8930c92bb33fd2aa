"""The configuration files of the test cluster, as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the files depend on.

    Attributes:
        folder: state, logs and configuration.
        sockets: folder of the sockets; short, because their names must stay below 108 bytes.
        hostname: of this machine.
        nodes: virtual nodes, each with 8 fake GPUs and 32 fake cores.
        port: first of ``nodes + 2`` ports.
        accounting: run slurmdbd and mariadb, so that ``sacct`` works.
        max_array_size: Slurm's MaxArraySize.
        gpus: device files that stand for a node's 8 GPUs.
    """

    folder: Path
    sockets: Path
    hostname: str
    nodes: int
    port: int
    accounting: bool
    max_array_size: int = 1001
    gpus: str = "/dev/tty[0-7]"

    @property
    def node_names(self) -> list[str]:
        return [f"vnode{i}" for i in range(1, self.nodes + 1)]

    @property
    def ports(self) -> range:
        """slurmctld, slurmdbd, then one per node."""
        return range(self.port, self.port + self.nodes + 2)


def files(s: Settings) -> dict[str, str]:
    """Name → text of every configuration file."""
    texts = {"slurm.conf": _slurm(s), "gres.conf": _gres(s)}
    if s.accounting:
        texts["slurmdbd.conf"] = _slurmdbd(s)
    return texts


def _slurm(s: Settings) -> str:
    if s.accounting:
        accounting = (
            "AccountingStorageType=accounting_storage/slurmdbd\n"
            "AccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={s.port + 1}\n"
            f"AccountingStoragePass={s.sockets}/munge\n"
        )
    else:
        accounting = "AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/none\n"
    return f"""\
ClusterName=vtest
SlurmctldHost={s.hostname}(127.0.0.1)
SlurmctldPort={s.port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job waits for its old credential to expire: 120 s unless told otherwise.
AuthInfo=socket={s.sockets}/munge,cred_expire=5
StateSaveLocation={s.folder}/state
SlurmdSpoolDir={s.folder}/spool/%n
SlurmctldPidFile={s.folder}/run/slurmctld.pid
SlurmdPidFile={s.folder}/run/slurmd-%n.pid
SlurmctldLogFile={s.folder}/log/slurmctld.log
SlurmdLogFile={s.folder}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ReturnToService=2
SlurmctldParameters=node_reg_mem_percent=0,preempt_send_user_signal
# The fake cores and memory need not exist.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill,UsePss
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0,preempt_youngest_first
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
# Refuse what can never run, instead of leaving it pending for ever.
EnforcePartLimits=ALL
InactiveLimit=0
KillWait=5
MinJobAge=600
SlurmctldTimeout=30
SlurmdTimeout=10
MessageTimeout=20
BatchStartTimeout=10
CompleteWait=0
OverTimeLimit=0
MaxJobCount=20000
MaxArraySize={s.max_array_size}
GresTypes=gpu
DefMemPerCPU=900
NodeName=vnode[1-{s.nodes}] NodeHostname={s.hostname} NodeAddr=127.0.0.1 Port=[{s.port + 2}-{s.ports[-1]}] \
CPUs=32 Boards=1 SocketsPerBoard=1 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=32000 Gres=gpu:8 \
State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP PriorityTier=1 \
PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=ALL MaxTime=INFINITE DefaultTime=10 State=UP PriorityTier=10 PreemptMode=OFF
{accounting}"""


def _gres(s: Settings) -> str:
    # Without device files a node with GPUs is invalid; regular files leave CUDA_VISIBLE_DEVICES unset.
    return f"NodeName=vnode[1-{s.nodes}] Name=gpu File={s.gpus}\n"


def _slurmdbd(s: Settings) -> str:
    return f"""\
AuthType=auth/munge
AuthInfo=socket={s.sockets}/munge
DbdHost={s.hostname}
DbdAddr=127.0.0.1
DbdPort={s.port + 1}
SlurmUser=root
PidFile={s.folder}/run/slurmdbd.pid
LogFile={s.folder}/log/slurmdbd.log
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""
