"""A private Slurm on this machine: munged, slurmctld and three slurmd with folders and ports of their
own, whose prolog, epilog and TaskProlog are those of deploy/slurm; all of it goes with its owner."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

USER = 65534  # nobody: an ordinary user that every machine has
NODES = ("n1", "n2", "n3")
PATIENCE = 60


def wait_for(condition, what, seconds=PATIENCE):
    """Until `condition` is true; returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


class Hooks:
    """The installed scripts, the programs, and a configuration for each node."""

    def __init__(self, build):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="spccl-slurm-"))
        self.folder.chmod(0o755)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name in ("spccld", "spcclctl", "classifier"):
            # Copies, where the ordinary user may go.
            if (build / "bin" / name).exists():
                shutil.copy(build / "bin" / name, self.bin)
        done = subprocess.run(["cmake", "--install", build, "--prefix", self.folder / "usr",
                               "--component", "spccld"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout
        self.scripts = self.folder / "usr/libexec/spccl/slurm"
        (self.folder / "spccld.toml").write_text(
            'channels = 1\n[peers]\nlisten = "127.0.0.1:0"\n')
        for node in NODES:
            self.configure(node)

    def configure(self, node, **changes):
        values = {"spccld": self.bin / "spccld", "spcclctl": self.bin / "spcclctl",
                  "runtime_dir": f"{self.folder}/%n/run", "state_dir": f"{self.folder}/%n/state",
                  "hook_dir": f"{self.folder}/%n/hooks", "config": self.folder / "spccld.toml",
                  "user": "root", "start": "detached", "start_timeout": 60, **changes}
        text = "".join(f"{key} = {value}\n" for key, value in values.items())
        (self.folder / f"{node}.conf").write_text("# Of a test.\n\n" + text)

    def run(self, script, node, job, uid=USER, **environment):
        """Runs a script as slurmd would: with no PATH."""
        return subprocess.run(
            [self.scripts / f"{script}.d/50-spccl", self.folder / f"{node}.conf"], text=True,
            env={"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(uid), "SLURMD_NODENAME": node,
                 **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)

    def runtime_dir(self, node):
        return self.folder / node / "run"

    def ctl(self, node, *arguments):
        """What the node's daemon answers, None where none does."""
        done = subprocess.run([self.bin / "spcclctl", "--runtime-dir", self.runtime_dir(node), "-o",
                               "json", *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def pid(self, node):
        status = self.ctl(node, "status")
        return status["status"]["pid"] if status else None

    def daemons(self):
        """Process ids of every daemon that runs from here."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.readlink(entry / "exe").startswith(str(self.bin / "spccld")):
                        found.append(int(entry.name))
                except OSError:
                    pass
        return found

    def close(self):
        for pid in self.daemons():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_ports(count):
    """Consecutive ones that nobody listens on."""
    for first in range(20000 + os.getpid() % 20000, 60000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.create_server(("127.0.0.1", port)))
            return first
        except OSError:
            pass
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no free ports")


class Lab(Hooks):
    def __init__(self, build):
        super().__init__(build)
        self.processes = []
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        folder, host = self.folder, socket.gethostname().split(".")[0]
        for name in ("munge", "ctld", "spool", "log"):
            (folder / name).mkdir(mode=0o755)
        (folder / "log").chmod(0o1777)  # TaskProlog is run by the job's user
        key = folder / "munge/key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for hook in ("prolog", "epilog", "taskprolog"):
            script = folder / hook
            script.write_text(f'#!/bin/bash\nexec {self.scripts}/{hook}.d/50-spccl '
                              f'"{folder}/$SLURMD_NODENAME.conf" 2>>{folder}/log/{hook}.$UID\n')
            script.chmod(0o755)
        port = free_ports(4)
        (folder / "slurm.conf").write_text(f"""
ClusterName=spccl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PrologFlags=Alloc
Prolog={folder}/prolog
Epilog={folder}/epilog
TaskProlog={folder}/taskprolog
PrologEpilogTimeout=200
ReturnToService=2
KillWait=5
MessageTimeout=60
JobRequeue=0
NodeName=n[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{port + 1}-{port + 3}] CPUs=8
PartitionName=all Nodes=ALL Default=YES MaxTime=30 State=UP
""")
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.spawn("munged", "--foreground", f"--socket={folder}/munge/socket",
                   f"--key-file={key}", f"--log-file={folder}/log/munged",
                   f"--pid-file={folder}/munge/pid", f"--seed-file={folder}/munge/seed")
        wait_for((folder / "munge/socket").exists, "munged")
        self.spawn("slurmctld", "-D", "-f", folder / "slurm.conf")
        for node in NODES:
            self.spawn("slurmd", "-D", "-f", folder / "slurm.conf", "-N", node)
        wait_for(lambda: all(self.state(node) == "IDLE" for node in NODES), "idle nodes")

    def spawn(self, name, *arguments):
        log = open(self.folder / "log" / f"{name}.out", "a")
        self.processes.append(subprocess.Popen([f"/usr/sbin/{name}", *map(str, arguments)],
                                               env=self.environment, stdout=log, stderr=log,
                                               stdin=subprocess.DEVNULL, start_new_session=True))

    def slurm(self, *command):
        done = subprocess.run([str(word) for word in command], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
        return done.stdout

    def node(self, name):
        """What scontrol shows of it, by key."""
        words = self.slurm("scontrol", "show", "node", name)
        lines = {}
        for line in words.splitlines():
            key, _, value = line.strip().partition("=")
            lines[key] = value
        return lines

    def state(self, name):
        return self.node(name).get("State", "").split()[0] if self.node(name) else ""

    def reset(self):
        """No job and no daemon, and all nodes usable."""
        self.slurm("scancel", "--full", "-u", USER)
        wait_for(lambda: not self.slurm("squeue", "-h").strip(), "an empty queue")
        for pid in self.daemons():
            os.kill(pid, signal.SIGCONT)
        for node in NODES:
            if "DRAIN" in self.state(node):
                self.slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")
            self.configure(node)
        wait_for(lambda: all(self.state(node) == "IDLE" for node in NODES), "idle nodes")
        for pid in self.daemons():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.daemons(), "no daemons")
        for node in NODES:
            shutil.rmtree(self.folder / node, ignore_errors=True)

    def submit(self, *arguments):
        """srun, as the ordinary user."""
        return subprocess.Popen(
            ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "srun",
             *map(str, arguments)], env=self.environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd="/tmp")

    def classifier(self, name, epochs, *before, nodes=3, options=()):
        """A job of a rank a node that trains."""
        meeting = self.folder / "meet"
        meeting.mkdir(exist_ok=True)
        meeting.chmod(0o1777)
        return self.submit(f"-N{nodes}", f"-n{nodes}", "--ntasks-per-node=1", "-J", name, *options,
                           *before, self.bin / "classifier", "--meet", meeting / name,
                           "--per-class", 40, "--bucket-bits", 12, "--batch", 2, "--epochs", epochs)

    def job_number(self, name):
        return self.slurm("squeue", "-h", "-o", "%A", "-n", name).strip()

    def logs(self):
        text = ""
        for path in sorted((self.folder / "log").iterdir()):
            text += f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-25:]) + "\n"
        return text

    def close(self):
        if getattr(self, "environment", None) and len(self.processes) > 1:
            subprocess.run(["scancel", "--full", "-u", str(USER)], env=self.environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=100)
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        super().close()
