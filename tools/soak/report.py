"""What can be seen of a soak that went wrong, while its processes are still there."""

import pathlib
import shutil
import subprocess

from world import Trouble


def run(command, limit_s=30):
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False,
                              timeout=limit_s)
        return done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"


def stacks(pid):
    if shutil.which("gdb"):
        return run(["gdb", "-p", pid, "-batch", "-nx", "-ex", "set pagination off", "-ex",
                    "thread apply all bt 25"], 60)
    waits = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        waits.append(f"{task.name}: {run(['cat', task / 'comm', task / 'wchan'])}")
    return "\n".join(waits)


def ask(world, daemon):
    """What it says itself; first the log, which may say why it says nothing."""
    ctl = [world.bin / "spcclctl", "--runtime-dir", daemon.folder]
    parts = [f"=== {daemon.name}, pid {daemon.pid}, exit {daemon.process.poll()}",
             *daemon.lines[-60:]]
    if daemon.process.poll() is not None:
        return parts
    for words in (["status"], ["comms", "--ranks", "--nodes"], ["buffers"]):
        parts += [f"--- spcclctl {' '.join(words)}", run([*ctl, *words])]
    try:
        comms = daemon.ctl("comms")["comms"]
    except Trouble as trouble:
        return [*parts, trouble]
    return parts + [run([*ctl, "explain", comm["id"]]) for comm in comms]


def write(world, running, path):
    """All of it, to a file. A daemon that a debugger stops is soon given up by its peers: stacks come
    after what daemons say."""
    jobs = running.jobs if running else []
    parts = []
    for job in jobs:
        parts.append(f"=== {job}, {job.fault or 'unharmed'}: {job.plan}")
        parts += [f"{ranks}: {said}" for ranks, said in job.processes.items()] + job.noise[-60:]
    for daemon in world.daemons:
        parts += ask(world, daemon)
    for job in jobs:
        for said in job.processes.values():
            if "started" in said and "ended" not in said:
                parts += [f"=== stacks of {said['started']}", stacks(said["started"]["pid"])]
    for daemon in world.daemons:
        if daemon.process.poll() is None:
            parts += [f"=== stacks of {daemon.name}", stacks(daemon.pid)]
    path.write_text("\n".join(map(str, parts)), encoding="utf-8")
