"""A job of a soak while it runs, and the judgement of how it ended."""

import json
import re
import signal
import subprocess

import netlab
from processes import Process
from world import Trouble

SYSTEM_ERROR, REMOTE_ERROR = 2, 6  # of spcclResult_t
# Descriptors of buffers that the library keeps to copy through: a few of each power of two.
MOST_KEPT = 64


class HostPart(Process):
    """The processes of a job on one host: soak-job, and those that it forks."""

    def __init__(self, job, command, environment):
        self.job = job
        super().__init__(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, env=environment)

    def take(self, line):
        try:
            told = json.loads(line)
        except json.JSONDecodeError:
            self.job.noise.append(line)
            return
        process = self.job.processes.get(tuple(told.get("ranks", ())))
        if process is None:
            self.job.noise.append(line)
        else:
            process[told["at"]] = told


class RunningJob:
    """All its processes; what each has said last of each kind is in `processes`, by its ranks."""

    def __init__(self, world, plan, folder):
        self.plan, self.world = plan, world
        self.may_fail = folder / f"job{plan.number}.may_fail"
        self.processes = {ranks: {} for ranks in plan.processes}
        self.noise = []   # what is no object: errors of the programs
        self.fault = None
        self.parts = []
        for host in sorted(set(plan.hosts)):
            own = "/".join(",".join(map(str, ranks))
                           for place, ranks in zip(plan.hosts, plan.processes) if place == host)
            command = [*world.on(host), world.bin / "soak-job", "--ranks", plan.ranks,
                       "--processes", own, "--seed", plan.seed, "--steps", plan.steps,
                       "--max-bytes", plan.max_bytes, "--meet", folder / f"job{plan.number}.id",
                       "--may-fail", self.may_fail]
            environment = {**world.environment, **dict(plan.environment),
                           "SPCCL_RUNTIME_DIR": str(world.daemons[host].folder)}
            self.parts.append(HostPart(self, command, environment))

    def __str__(self):
        return f"job {self.plan.number} ({self.plan.ranks} ranks, seed {self.plan.seed})"

    def all_said(self, *kinds):
        return all(any(kind in said for kind in kinds) for said in self.processes.values())

    def has_ended(self):
        return all(part.ended for part in self.parts)

    def pids(self):
        return {said["started"]["pid"] for said in self.processes.values() if "started" in said}

    def pid(self, process):
        """Of the plan's processes, by its place; None: it has not started, or has ended."""
        said = self.processes[self.plan.processes[process]]
        return said["started"]["pid"] if "started" in said and "ended" not in said else None

    def allow_failure(self, fault):
        """From now on the job may fail, as this fault has it."""
        self.fault = fault
        self.may_fail.touch()

    def end(self):
        for part in self.parts:
            part.end()

    def count(self, what):
        return sum(said.get("done", said.get("failed", {})).get(what, 0)
                   for said in self.processes.values())

    def judge(self):
        """Raises Trouble unless it has ended as it should. How many expected errors there were."""
        named, failures = [], []  # of those that lived
        for ranks, said in self.processes.items():
            who = f"{self}, ranks {', '.join(map(str, ranks))}"
            if "wrong" in said:
                raise Trouble(f"{who}: WRONG RESULT: {said['wrong']}")
            ended = said.get("ended", {})
            if self.fault and ended.get("signal") == signal.SIGKILL and ranks in self.fault.killed:
                continue
            if ended.get("code") != 0 or ("done" not in said and "failed" not in said):
                raise Trouble(f"{who}: ended as {said}; {self.noise[-30:]}")
            if "failed" in said:
                failures.append(said["failed"])
                named.append(self._judge_failure(who, ranks, said["failed"]))
            else:
                self._judge_success(who, said["done"])
        # Where all wait for a first id that never comes, nobody has asked a daemon for anything.
        met = any(failed["phase"] != "meet" for failed in failures)
        if self.fault and met and not any(named):
            raise Trouble(f"{self}: nobody was told of {self.fault}: {failures}")
        return len(named)

    def _judge_success(self, who, done):
        if self.plan.doomed:
            raise Trouble(f"{who}: done, and should run without an end")
        joined, left = done["descriptors"]
        if left > joined + MOST_KEPT:
            raise Trouble(f"{who}: {left} descriptors at its end, {joined} after it had joined")

    def _judge_failure(self, who, ranks, failed):
        """Whether the error tells of the fault itself, and not of others who failed before."""
        if self.fault is None or not failed["expected"]:
            raise Trouble(f"{who}: an error that nobody caused: {failed}")
        if failed["clean_up"]:
            raise Trouble(f"{who}: after the error: {failed['clean_up']}; {failed}")
        if self.fault.is_told(ranks, failed):
            return True
        # Somebody else was told first and has left, or this one waits for an id that never comes.
        if failed["phase"] == "meet" or self._names_a_failed_one(failed):
            return False
        raise Trouble(f"{who}: the error does not tell of {self.fault}: {failed}")

    def _names_a_failed_one(self, failed):
        gone = {rank for ranks, said in self.processes.items()
                if "failed" in said or "done" not in said for rank in ranks}
        # Who waits for one to join that has failed is told of a deadline.
        told = failed["result"] == REMOTE_ERROR or failed["phase"] == "spcclCommInitRank"
        return told and bool(named_ranks(failed) & gone)


def named_ranks(failed):
    """Ranks of the job that the text of an error names, which has a communicator's."""
    members = failed.get("members", [])
    named = set()
    for numbers in re.findall(r"ranks? (\d+(?:(?:, | and )\d+)*)", failed["text"]):
        named |= {members[int(number)] for number in re.findall(r"\d+", numbers)
                  if int(number) < len(members)}
    return named


class Fault:
    """What was done to a job: by it, errors are expected."""

    def __init__(self, what, killed=(), culprits=None, reason=None, daemon_of=(),
                 pids=(), hosts=None):
        self.pids = pids  # of the killed: of several operations' errors, whose rank it is is not known
        self.what, self.killed, self.reason = what, set(killed), reason
        self.culprits = culprits or (lambda ranks: set())  # whom a process of these ranks is told of
        self.daemon_of = set(daemon_of)                    # ranks whose own daemon is lost
        # Of which hosts it may be told instead while a communicator forms: who asks another node's
        # daemon for it does not know yet which ranks are there.
        self.hosts = hosts or (lambda ranks: set())

    def __str__(self):
        return self.what

    def is_told(self, ranks, failed):
        if set(ranks) & self.daemon_of:
            return failed["result"] == SYSTEM_ERROR
        if failed["result"] != REMOTE_ERROR:
            return False
        if self.reason and self.reason in failed["text"]:
            return True
        if failed["phase"] == "spcclCommInitRank" and any(
                f"({netlab.address(host + 1)}:" in failed["text"] for host in self.hosts(ranks)):
            return True
        return (bool(named_ranks(failed) & self.culprits(ranks))
                or any(f"(pid {pid}" in failed["text"] for pid in self.pids))
