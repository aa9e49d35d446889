"""What a soak does: drawn from its seed, episode by episode, before anything runs."""

import dataclasses
import random

HOSTS = 3
ALGORITHMS = ["auto", "local", "ring", "two-level-ring", "recursive-doubling", "halving-doubling",
              "split", "direct", "tree"]
CODECS = ["auto", "dense", "pici", "pici-column", "coo", "gap"]
# A cut of at most a second is survived; after 3 s all that are cut off know it (docs/adr/0008).
BRIEFLY_S, FOR_LONG_S = 1.0, 4.5

# Shares of the episodes. The later ones need hosts of tools/netlab.sh.
THEMES = {"peace": 24, "kill": 26, "abort": 8, "freeze": 6, "daemon": 12}
LAB_THEMES = {"brief-cut": 10, "long-cut": 8, "loss": 6}


@dataclasses.dataclass(frozen=True)
class Job:
    number: int
    seed: int
    hosts: tuple        # of each process
    processes: tuple    # of ranks
    steps: int          # 0: until something fails
    max_bytes: int
    environment: tuple  # of pairs

    @property
    def ranks(self):
        return sum(map(len, self.processes))

    def ranks_on(self, host):
        return {rank for place, ranks in zip(self.hosts, self.processes) if place == host
                for rank in ranks}

    @property
    def doomed(self):
        return self.steps == 0


@dataclasses.dataclass(frozen=True)
class Event:
    at_s: float  # since all jobs run; below 0: while they start
    kind: str    # a method of episode.Events
    arguments: tuple = ()


@dataclasses.dataclass(frozen=True)
class Episode:
    number: int
    theme: str
    jobs: tuple
    events: tuple  # in their order


class Draw:
    """Draws episode `number` of the soak with this seed: always the same one."""

    def __init__(self, seed, number, with_lab, scale):
        self.random = random.Random(f"{seed}/{number}")
        self.number, self.scale = number, scale
        themes = THEMES | (LAB_THEMES if with_lab else {})
        self.theme = self.random.choices(list(themes), themes.values())[0]
        self.jobs, self.events = [], []

    def episode(self):
        self.jobs = [self.job(i) for i in range(self.random.choices([1, 2, 3], [3, 5, 3])[0])]
        getattr(self, self.theme.replace("-", "_"))()
        for _ in range(self.random.randrange(4)):
            self.event(self.moment(), "settings", *self.settings())
        for _ in range(self.random.randrange(3)):
            self.event(self.moment(), "look", self.any_host(), self.random.randrange(1 << 16))
        if self.random.random() < 0.2:
            self.event(self.moment(), "reload", self.any_host(), round(self.random.random(), 3))
        return Episode(self.number, self.theme, tuple(self.jobs),
                       tuple(sorted(self.events, key=lambda event: event.at_s)))

    def any_host(self):
        return self.random.randrange(HOSTS)

    def moment(self):
        return round(self.random.uniform(0.02, 1.5), 3)

    def event(self, at_s, kind, *arguments):
        self.events.append(Event(at_s, kind, arguments))

    def job(self, number):
        ranks = self.random.choices([1, 2, 3, 4, 5, 6], [1, 5, 5, 5, 2, 2])[0]
        if self.random.random() < 0.45:
            hosts = [self.any_host()] * ranks
        else:
            hosts = sorted(self.any_host() for _ in range(ranks))
            if self.random.random() < 0.4:
                self.random.shuffle(hosts)
        processes, places = [], []
        for rank, host in enumerate(hosts):
            if host in places and self.random.random() < 0.2:  # with another rank there
                processes[len(places) - 1 - places[::-1].index(host)].append(rank)
            else:
                processes.append([rank])
                places.append(host)
        return Job(number, self.random.randrange(1 << 48), tuple(places),
                   tuple(map(tuple, processes)), self.random.randint(20, 120),
                   int(self.random.choice([1 << 12, 1 << 18, 1 << 21, 1 << 24]) * self.scale),
                   self.environment())

    def environment(self):
        pairs = {}
        if self.random.random() < 0.2:
            pairs["SPCCL_ALGO"] = self.random.choice(ALGORITHMS)
        if self.random.random() < 0.2:
            pairs["SPCCL_CODEC"] = self.random.choice(CODECS)
        if self.random.random() < 0.2:
            pairs["SPCCL_FORCE_STAGING"] = "1"
        if self.random.random() < 0.3:
            pairs["SPCCL_RELAY_BYTES"] = self.random.choice(["65536", "1048576"])
        return tuple(sorted(pairs.items()))

    def settings(self):
        """A command of spcclctl, and for what: each is one of several that there may be then."""
        kind = self.random.choice(["threshold", "threshold", "algo", "codec", "reset"])
        if kind == "threshold":
            words = ["threshold", "set"]
            if self.random.random() < 0.3:
                words.append(self.random.choice(["auto", "paper"]))
            else:
                words += ["--codec", self.random.choice(["pici", "coo"])]
                for part in self.random.sample(["intra", "inter", "ag"], self.random.randint(1, 3)):
                    value = self.random.choice(["auto", 0, 0.3, 0.5, 0.9, 1])
                    words += [f"--{part}", str(value)]
        elif kind == "algo":
            words = ["algo", "set", self.random.choice(ALGORITHMS), "--codec",
                     self.random.choice(CODECS)]
        elif kind == "codec":
            words = ["codec", "set", self.random.choice(CODECS)]
        else:
            words = [self.random.choice(["threshold", "algo", "codec"]), "reset"]
        scope = self.random.choice(["all", "job", "comm"])
        return self.any_host(), tuple(words), scope, self.random.randrange(1 << 16)

    def doom(self, which):
        """The job runs until something fails."""
        self.jobs[which] = dataclasses.replace(self.jobs[which], steps=0)
        return self.jobs[which]

    def doom_those(self, touched):
        for i, job in enumerate(self.jobs):
            if touched(job):
                self.doom(i)

    def peace(self):
        """Nothing happens."""

    def kill(self):
        job = self.doom(self.random.randrange(len(self.jobs)))
        count = min(len(job.processes), self.random.choice([1, 1, 2]))
        victims = tuple(sorted(self.random.sample(range(len(job.processes)), count)))
        early = self.random.random() < 0.15
        self.event(-1 if early else self.moment(), "kill", job.number, victims)

    def abort(self):
        job = self.doom(self.random.randrange(len(self.jobs)))
        self.event(self.moment(), "abort", job.number)

    def freeze(self):
        job = self.random.choice(self.jobs)
        self.event(self.moment(), "freeze", job.number, self.random.randrange(len(job.processes)),
                   round(self.random.uniform(0.05, 0.8), 3))

    def daemon(self):
        host = self.random.randrange(1, HOSTS)  # the first one is never lost: its growth is watched
        self.doom_those(lambda job: host in job.hosts)
        self.event(self.moment(), "lose_daemon", host, self.random.random() < 0.7)

    def brief_cut(self):
        """One event: were the end another one, what happens before it could delay it for too long."""
        length_s = round(self.random.uniform(0.1, BRIEFLY_S), 3)
        self.event(self.moment(), "cut_briefly", self.any_host(), length_s)

    def long_cut(self):
        host, at_s = self.any_host(), self.moment()
        self.event(at_s, "cut", host)
        self.event(at_s + FOR_LONG_S, "join", host)
        self.doom_those(lambda job: host in job.hosts and len(set(job.hosts)) > 1)

    def loss(self):
        self.event(-1, "loss", self.any_host(), 1)
