"""Runs an episode of a soak: jobs, what happens to them, and the judgement."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

from jobs import Fault, RunningJob
from plan import FOR_LONG_S, HOSTS, Episode, Job
from processes import await_true
from world import Trouble

# How long jobs that nobody harms may take, and those that were harmed until all have ended; times
# the world's patience over 20 s. The longest were seen to take 15 s, with the machine shared.
JOBS_MAY_TAKE_S, FAILURE_MAY_TAKE_S = 120, 20


class Events:
    """What happens to running jobs and their daemons; the names are those of plan.Event.kind."""

    def __init__(self, world, jobs, counts):
        self.world, self.jobs, self.counts = world, jobs, counts
        self.harmed_s = {}   # by job: when
        self.lost = {}       # daemons: whether by a kill
        self.set = set()     # (host, job id) with settings of their own
        self.joins_s = {}    # hosts that are cut off for long: not before

    def happen(self, event):
        getattr(self, event.kind)(*event.arguments)

    def _harm(self, job, fault):
        job.allow_failure(fault)
        self.harmed_s[job.plan.number] = time.monotonic()

    def kill(self, number, victims):
        job = self.jobs[number]
        await_true("victims have started", lambda: all(job.pid(i) for i in victims),
                   self.world.patience_s)
        killed = [job.plan.processes[i] for i in victims]
        ranks = {rank for process in killed for rank in process}
        self._harm(job, Fault(f"the kill of ranks {sorted(ranks)}", killed, lambda own: ranks,
                              pids=[job.pid(i) for i in victims]))
        for pid in [job.pid(i) for i in victims]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it was told of the first one's end, and has ended
            self.counts["kills"] += 1

    def abort(self, number):
        """Of the communicator of all ranks: another may be left just then, and nobody be told."""
        job = self.jobs[number]
        daemon = self.world.daemons[job.plan.hosts[0]]
        pids = job.pids()
        comms = [comm["id"] for comm in daemon.ctl("comms", "--ranks")["comms"]
                 if pids & {member["pid"] for member in comm["members"]}]
        self._harm(job, Fault("the operator's abort", reason="by the soak"))
        daemon.ctl("abort", min(comms, key=int), "--reason", "by the soak")
        self.counts["aborts"] += 1

    def freeze(self, number, process, seconds):
        pid = self.jobs[number].pid(process)
        if pid is None:
            return
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # it was done
        self.counts["freezes"] += 1

    def lose_daemon(self, host, kills):
        for job in self.jobs:
            own = job.plan.ranks_on(host)
            if own:
                self._harm(job, Fault(f"the end of host {host + 1}'s daemon",
                                      culprits=lambda _, own=own: own, daemon_of=own,
                                      hosts=lambda _: {host}))
        self.lost[self.world.daemons[host]] = kills
        self.world.daemons[host].send(signal.SIGKILL if kills else signal.SIGTERM)
        self.counts["daemons lost"] += 1

    def cut_briefly(self, host, seconds):
        self.world.lab.say("cut", host + 1)
        time.sleep(seconds)
        self.join(host)
        self.counts["brief cuts"] += 1

    def cut(self, host):
        for job in self.jobs:
            own = job.plan.ranks_on(host)
            others = set(range(job.plan.ranks)) - own
            if own and others:
                self._harm(job, Fault(
                    f"host {host + 1} being cut off",
                    culprits=lambda ranks, own=own, others=others:
                        others if set(ranks) & own else own,
                    hosts=lambda ranks, own=own:
                        set(range(HOSTS)) - {host} if set(ranks) & own else {host}))
        self.world.lab.say("cut", host + 1)
        self.joins_s[host] = time.monotonic() + FOR_LONG_S
        self.counts["long cuts"] += 1

    def join(self, host):
        """Also forgets, on all hosts, which of them did not answer: see docs/adr/0008. A long cut is as
        long as it was meant to be also where what came before it delayed it: a shorter one is survived."""
        time.sleep(max(0, self.joins_s.pop(host, 0) - time.monotonic()))
        self.world.lab.say("join", host + 1)
        for one in range(HOSTS):
            subprocess.run([*map(str, self.world.on(one)), "ip", "neigh", "flush", "all"],
                           check=True)

    def loss(self, host, percent):
        self.world.lab.say("loss", host + 1, percent)
        self.counts["lossy episodes"] += percent > 0

    def settings(self, host, words, scope, pick):
        daemon = self.world.daemons[host]
        if daemon.process.poll() is not None or daemon in self.lost:
            return
        words = [*words]
        if scope != "all":
            comms = daemon.ctl("comms")["comms"]
            if not comms:
                return
            comm = comms[pick % len(comms)]
            if scope == "job":
                words += ["--job", comm["job_id"]]
                self.set.add((host, comm["job_id"]))
            else:
                words += ["--comm", comm["id"]]
        daemon.ctl(*words, fine=(0, 5))
        self.counts["changes"] += 1

    def look(self, host, pick):
        """What operators do to see what goes on must not disturb it."""
        daemon = self.world.daemons[host]
        if daemon in self.lost:
            return
        comms = daemon.ctl("comms", "--sends", "--nodes")["comms"]
        daemon.ctl("jobs")
        daemon.ctl("buffers")
        daemon.ctl("events")
        if comms:
            comm = comms[pick % len(comms)]["id"]
            daemon.ctl("trace", comm, "--out", daemon.folder.parent / "trace.json", fine=(0, 5))
            daemon.ctl("explain", comm, "--wait", "50ms", fine=(0, 5))
        daemon.check_metrics()
        self.counts["looks"] += 1

    def reload(self, host, threshold):
        daemon = self.world.daemons[host]
        if daemon in self.lost:
            return
        (daemon.folder / "spccld.toml").write_text(f"[thresholds.pici]\nintra = {threshold}\n",
                                                   encoding="utf-8")
        daemon.send(signal.SIGHUP)
        self.counts["reloads"] += 1


class Running:
    """One episode, from its jobs' start to the calm after it."""

    def __init__(self, world, plan, counts):
        self.world, self.plan, self.counts = world, plan, counts
        self.slower = world.patience_s / 20
        self.jobs = []
        self.events = None

    def run(self):
        with tempfile.TemporaryDirectory(dir=self.world.folder, prefix="jobs-") as folder:
            try:
                for job in self.plan.jobs:
                    self.jobs.append(RunningJob(self.world, job, pathlib.Path(folder)))
                self.events = Events(self.world, self.jobs, self.counts)
                self._disturb()
                self._await_ends()
                self._judge()
            except AssertionError as late:
                raise Trouble(str(late)) from None
        self._heal()

    def end_jobs(self):
        for job in self.jobs:
            job.end()

    def _disturb(self):
        early = [event for event in self.plan.events if event.at_s < 0]
        for event in early:
            self.events.happen(event)
        await_true("all jobs have joined",
                   lambda: all(job.all_said("joined", "failed", "ended") for job in self.jobs),
                   JOBS_MAY_TAKE_S * self.slower)
        start_s = time.monotonic()
        for event in self.plan.events[len(early):]:
            time.sleep(max(0, start_s + event.at_s - time.monotonic()))
            self.events.happen(event)

    def _await_ends(self):
        """All end in time; those that were harmed within seconds."""
        harmed = [job for job in self.jobs if job.fault]
        for jobs, limit_s in ((harmed, FAILURE_MAY_TAKE_S), (self.jobs, JOBS_MAY_TAKE_S)):
            limit_s *= self.slower
            await_true(f"the end of {', '.join(map(str, jobs))}",
                       lambda jobs=jobs: all(job.has_ended() for job in jobs), limit_s)
        self.end_jobs()

    def _judge(self):
        lost = self.events.lost
        self.world.check_alive(but=lost)
        for job in self.jobs:
            self.counts["expected errors"] += job.judge()
            self.counts["jobs"] += 1
            self.counts["processes"] += len(job.processes)
            self.counts["communicators"] += job.count("joins")
            self.counts["operations"] += job.count("operations")
            self.counts["bytes"] += job.count("bytes")
            self._note_slowest(job)

    def _note_slowest(self, job):
        """How long it took until all of a harmed job knew."""
        told_ns = [said["failed"]["ns"] for said in job.processes.values() if "failed" in said]
        if told_ns:
            told_s = max(told_ns) / 1e9 - self.events.harmed_s[job.plan.number]
            slowest = self.counts.slowest_s
            slowest[self.plan.theme] = max(slowest.get(self.plan.theme, 0), told_s)

    def _heal(self):
        """All as it was before, but for what may have grown."""
        for event in self.plan.events:
            if event.kind == "loss":
                self.events.loss(event.arguments[0], 0)
        for daemon, killed in self.events.lost.items():
            daemon.process.wait(self.world.patience_s)
            if killed:
                daemon.end()
            else:
                daemon.end_well()
            self.world.restart(daemon.host)
        for daemon in self.world.daemons:
            scopes = [["--job", job_id] for host, job_id in sorted(self.events.set)
                      if host == daemon.host]
            for scope in [[], *scopes]:
                daemon.ctl("threshold", "reset", *scope)
                daemon.ctl("algo", "reset", *scope)
        self.world.await_calm()


def roll_call(world, counts):
    """To be run: a small job over all hosts. All is well again, and all links are up when we look."""
    job = Job(0, 1, tuple(range(HOSTS)), tuple((rank,) for rank in range(HOSTS)), 12, 1 << 16, ())
    return Running(world, Episode(-1, "roll call", (job,), ()), counts)
