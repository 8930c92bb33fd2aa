"""Start, stop and inspect the test cluster; and harm its nodes on purpose."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

from bitpipe.checkout import ROOT
from bitpipe.errors import InputError
from slurm.testcluster import daemons
from slurm.testcluster.configuration import Settings, files

DEFAULT_FOLDER = ROOT / ".testcluster"
HOSTS = Path("/etc/hosts")


class TestCluster:
    """Slurm with virtual nodes; everything it writes lies below ``folder``.

    Args:
        folder: state, logs, configuration; made on start.
        nodes: virtual nodes.
        accounting: with slurmdbd and mariadb, so that sacct works.
    """

    __test__ = False  # the name is not a test for pytest

    def __init__(self, folder: Path = DEFAULT_FOLDER, *, nodes: int = 4, accounting: bool = True) -> None:
        self.folder = folder.resolve()
        saved = self.folder / "settings.json"
        if saved.exists():
            values = json.loads(saved.read_text())
            self.settings = Settings(
                **{**values, "folder": Path(values["folder"]), "sockets": Path(values["sockets"])}
            )
        else:
            self.settings = Settings(
                folder=self.folder,
                sockets=_socket_folder(self.folder),
                hostname=socket.gethostname().split(".")[0],
                nodes=nodes,
                port=0,
                accounting=accounting,
            )
        self._nodes, self._accounting = nodes, accounting

    # ---- what clients need

    @property
    def configuration(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, pointed at the test cluster."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
        sbin = os.pathsep.join([inherited.get("PATH", ""), "/usr/sbin", "/sbin"])
        return {**inherited, "PATH": sbin, "SLURM_CONF": str(self.configuration)}

    def client(
        self, *command: str, timeout: float = 20, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a Slurm client command."""
        return subprocess.run(
            command, env=self.environment, timeout=timeout, check=check, capture_output=True, text=True
        )

    # ---- start

    def start(self) -> bool:
        """Start what is not running; False if all of it already was.

        Raises:
            InputError: not root, or packages are missing.
            RuntimeError: a daemon did not come up; the message ends with its log.
        """
        _require_root_and_packages(accounting=self._accounting)
        if self.running():
            return False
        if self._nodes_up():  # all but the database, which jobs can live without for a while
            self._start_database()
            return True
        # All daemons are there, perhaps busy or with a node that has just come back: leave them alone.
        if self._complete() and daemons.wait_until(self.running, seconds=40, step=0.3):
            return False
        self.stop()
        self.settings = replace(self.settings, nodes=self._nodes, accounting=self._accounting)
        self.settings = replace(self.settings, port=daemons.free_ports(len(self.settings.ports)))
        self.settings = replace(self.settings, gpus=_gpu_files(self.folder))
        self._write()
        self._start_munge()
        if self.settings.accounting:
            self._start_database()
        self._daemon("slurmctld", "slurmctld", "-c")
        for name in self.settings.node_names:
            self.start_node(name)
        if not daemons.wait_until(self.running, seconds=40, step=0.3):
            raise RuntimeError("the test cluster did not come up\n" + self._last_lines())
        return True

    def _complete(self) -> bool:
        names = ["slurmctld", "munged", *(f"slurmd-{name}" for name in self.settings.node_names)]
        names += ["slurmdbd", "mariadbd"] if self.settings.accounting else []
        return all(self._pid(name) for name in names)

    def running(self) -> bool:
        """All nodes answer and take jobs, and accounting answers where there is to be any."""
        return self._nodes_up() and (not self.settings.accounting or self._accounting_answers())

    def _nodes_up(self) -> bool:
        if not self.configuration.exists() or not self._pid("slurmctld"):
            return False
        try:
            lines = self.client("sinfo", "-h", "-N", "-p", "main", "-o", "%T", timeout=5).stdout.split()
        except (subprocess.SubprocessError, OSError):
            return False
        return len(lines) == self.settings.nodes and set(lines) <= {
            "idle",
            "mixed",
            "allocated",
            "completing",
        }

    def _write(self) -> None:
        s = self.settings
        for name in ("state", "log", "run", "spool", "munge"):
            (s.folder / name).mkdir(parents=True, exist_ok=True)
        s.folder.chmod(0o755)
        (s.folder / ".gitignore").write_text("*\n")
        s.sockets.mkdir(parents=True, exist_ok=True, mode=0o755)
        for name, text in files(s).items():
            (s.folder / name).write_text(text)
            (s.folder / name).chmod(0o600 if name == "slurmdbd.conf" else 0o644)
        values = {key: str(v) if isinstance(v, Path) else v for key, v in asdict(s).items()}
        (s.folder / "settings.json").write_text(json.dumps(values, indent=1))
        _write_hosts(s.node_names, self.folder)

    def _start_munge(self) -> None:
        key = self.folder / "munge" / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(128))
        (self.settings.sockets / "munge").unlink(missing_ok=True)
        self._daemon(
            "munged",
            "munged",
            "--force",
            f"--socket={self.settings.sockets}/munge",
            f"--key-file={key}",
            f"--pid-file={self.folder}/run/munged.pid",
            f"--log-file={self.folder}/log/munged.log",
            f"--seed-file={self.folder}/munge/seed",
        )

    def _start_database(self) -> None:
        data, sock = self.folder / "mysql", self.settings.sockets / "mysql"
        log = self.folder / "log" / "mariadbd.log"
        if not (data / "mysql").exists():
            shutil.rmtree(data, ignore_errors=True)
            data.mkdir()
            with open(log, "ab") as out:
                subprocess.run(
                    [
                        "mariadb-install-db",
                        "--no-defaults",
                        "--user=root",
                        f"--datadir={data}",
                        "--auth-root-authentication-method=socket",
                        "--skip-test-db",
                    ],
                    stdout=out,
                    stderr=out,
                    check=True,
                    timeout=120,
                )
        if not self._pid("mariadbd"):
            daemons.spawn(
                [
                    "mariadbd",
                    "--no-defaults",
                    "--user=root",
                    f"--datadir={data}",
                    f"--socket={sock}",
                    f"--pid-file={self.folder}/run/mariadbd.pid",
                    "--skip-networking",
                    "--innodb-buffer-pool-size=64M",
                    "--innodb-log-file-size=16M",
                    "--innodb-flush-log-at-trx-commit=0",
                    "--innodb-lock-wait-timeout=900",
                    "--performance-schema=OFF",
                ],
                log=log,
                environment=self.environment,
            )
        create = ["mariadb", "--no-defaults", "-S", str(sock), "-e"]
        create += ["create database if not exists slurm_acct_db"]

        def created() -> bool:
            return subprocess.run(create, capture_output=True, timeout=20).returncode == 0

        if not daemons.wait_until(created, seconds=40):
            raise RuntimeError("mariadb did not come up\n" + self._last_lines())
        # slurmdbd has no option for a socket; the client library reads this variable.
        if not self._pid("slurmdbd"):
            self._daemon("slurmdbd", "slurmdbd", environment={"MYSQL_UNIX_PORT": str(sock)})
        if not daemons.wait_until(self._accounting_answers, seconds=40):
            raise RuntimeError("slurmdbd did not come up\n" + self._last_lines())
        if "vtest" not in self.client("sacctmgr", "-n", "-i", "list", "cluster", "vtest").stdout:
            self.client("sacctmgr", "-i", "add", "cluster", "vtest")

    def _accounting_answers(self) -> bool:
        try:
            return self.client("sacctmgr", "-n", "show", "cluster", timeout=5, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _daemon(self, name: str, *command: str, environment: dict[str, str] | None = None) -> None:
        """Start a program that puts itself in the background."""
        log = self.folder / "log" / f"{name}.start.log"
        process = daemons.spawn(
            list(command), log=log, environment={**self.environment, **(environment or {})}
        )
        if process.wait(timeout=30) != 0:
            raise RuntimeError(f"{name} did not start: {log.read_text()[-500:]}\n{self._last_lines()}")

    def _pid(self, name: str) -> int | None:
        return daemons.pid_of(self.folder / "run" / f"{name}.pid", name.split("-")[0])

    def _last_lines(self) -> str:
        logs = sorted((self.folder / "log").glob("*.log"))
        return "\n".join(f"{log.name}: {line}" for log in logs for line in log.read_text().splitlines()[-3:])

    # ---- stop

    def stop(self) -> bool:
        """End all jobs and daemons; False if nothing was running."""
        names = [f"slurmd-{name}" for name in self.settings.node_names]
        was_running = any(self._pid(n) for n in [*names, "slurmctld", "slurmdbd", "mariadbd", "munged"])
        if self._pid("slurmctld"):
            self._cancel_all()
        self._kill_steps()
        for group in (["slurmctld", *names], ["slurmdbd"], ["mariadbd"], ["munged"]):
            daemons.stop([pid for pid in map(self._pid, group) if pid])
        self._kill_steps()
        for pid_file in (self.folder / "run").glob("*.pid"):
            pid_file.unlink(missing_ok=True)
        _write_hosts([], self.folder)
        if self.settings.sockets != self.folder / "run":
            shutil.rmtree(self.settings.sockets, ignore_errors=True)
        return was_running

    def _cancel_all(self) -> None:
        """Cancel, so that the accounting sees an end of every job."""

        def empty() -> bool:
            return not self.client("squeue", "-h", timeout=5).stdout.strip()

        try:
            self.client("scancel", "--signal=KILL", "-u", "root", timeout=10, check=False)
            self.client("scancel", "-u", "root", timeout=10, check=False)
            daemons.wait_until(empty, seconds=6)
        except (subprocess.SubprocessError, OSError):
            return

    def _kill_steps(self, node: str | None = None) -> None:
        """Kill what runs on the nodes (on one node): processes of jobs and the daemons above them.

        The step daemons wipe their environment; their children show where they belong.
        """
        marks = [f"SLURM_CONF={self.configuration}"] + ([f"SLURMD_NODENAME={node}"] if node else [])
        tasks = [
            pid
            for pid in daemons.with_environment(*marks)
            if node or b"SLURMD_NODENAME=" in Path(f"/proc/{pid}/environ").read_bytes()
        ]
        above = {pid for pid, name in map(daemons.parent, tasks) if name == "slurmstepd"}
        for pid in [*above, *tasks]:
            daemons.kill(pid)

    # ---- daemons

    def stop_daemon(self, name: str) -> None:
        """Let ``slurmctld`` or ``slurmdbd`` be away until :meth:`start_daemon`; its jobs go on."""
        daemons.stop([pid for pid in [self._pid(name)] if pid])

    def start_daemon(self, name: str) -> None:
        """Bring it back, with what it knew."""
        environment = {"MYSQL_UNIX_PORT": str(self.settings.sockets / "mysql")} if name == "slurmdbd" else {}
        self._daemon(name, name, environment=environment)

    # ---- nodes

    def start_node(self, name: str) -> None:
        """Start a node's slurmd unless it runs."""
        if not self._pid(f"slurmd-{name}"):
            self._daemon(f"slurmd-{name}", "slurmd", "-N", name)

    def kill_node(self, name: str) -> None:
        """Let a node die: slurmd, step daemons and their processes, all at once."""
        pid = self._pid(f"slurmd-{name}")
        if pid:
            os.kill(pid, signal.SIGKILL)
        self._kill_steps(name)

    def revive_node(self, name: str) -> None:
        """Bring a dead node back and wait until it takes jobs."""
        self.start_node(name)

        def up() -> bool:
            state = self.client("sinfo", "-h", "-n", name, "-p", "main", "-o", "%T").stdout.split()
            return state[:1] in (["idle"], ["mixed"], ["allocated"])

        if not daemons.wait_until(up, seconds=30):
            raise RuntimeError(f"{name} did not come back\n{self._last_lines()}")


def _socket_folder(folder: Path) -> Path:
    """A folder whose socket names stay below the system's limit of 108 bytes."""
    inside = folder / "run"
    if len(str(inside)) < 80:
        return inside
    return Path("/tmp") / f"vtest-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def _gpu_files(folder: Path) -> str:
    """Character devices that stand for a node's GPUs: consoles, or ours where a container has none."""
    if all(Path(f"/dev/tty{number}").is_char_device() for number in range(8)):
        return "/dev/tty[0-7]"
    (folder / "dev").mkdir(parents=True, exist_ok=True)
    for number in range(8):
        path = folder / "dev" / f"gpu{number}"
        if not path.is_char_device():
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # as /dev/null
    return f"{folder}/dev/gpu[0-7]"


def _write_hosts(names: list[str], folder: Path) -> None:
    """Make node names resolvable (rendezvous addresses use them); an empty list takes them out.

    This machine's own name goes with them where nothing resolves it, as on some minimal images.
    """
    mark = f"# test cluster in {folder}"
    lines = [line for line in HOSTS.read_text().splitlines() if not line.endswith(mark)]
    if names:
        own = socket.gethostname()
        known = any(own in line.split("#")[0].split()[1:] for line in lines) or _resolves(own)
        every = names if known else [*names, own, own.split(".")[0]]
        lines.append(f"127.0.0.1 {' '.join(dict.fromkeys(every))} {mark}")
    text = "\n".join(lines) + "\n"
    if text != HOSTS.read_text():
        HOSTS.write_text(text)  # in place: the file may be a mount


def _resolves(name: str) -> bool:
    try:
        return bool(socket.gethostbyname(name))
    except OSError:
        return False


def _require_root_and_packages(*, accounting: bool) -> None:
    if os.geteuid() != 0:
        raise InputError("testcluster", "start", "needs root (several slurmd on one machine)", "use sudo -E")
    programs = ["slurmctld", "slurmd", "sbatch", "munged"]
    programs += ["slurmdbd", "mariadbd"] if accounting else []
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = [program for program in programs if not shutil.which(program, path=path)]
    if missing:
        raise InputError(
            "testcluster", "start", f"{', '.join(missing)} not installed", "run slurm/testcluster/install"
        )
