"""What daemons hold, at each calm: whether it grows."""

import statistics

# From this many samples on a daemon's life is judged; the first part of it warms up. Of fewer all may be
# warm-up: of 77 daemons in an hour two grew by 19 and 17 MiB within 13 and 15 samples, none that had 40
# by more than 12.
FEWEST, WARM_UP = 40, 0.25
# By which the median of the last quarter may be above that of the first, of what came after the
# warm-up. Shared mappings and files: not at all. Descriptors: two were seen more after links had been made
# anew, why is not known yet. Threads are gRPC's, which come and go;
# mappings the allocator's arenas, a few for each of them. Memory: a share of it, and some KiB.
SLACK = {"descriptors": 4, "shared mappings": 0, "files": 0, "threads": 4, "mappings": 24}
RESIDENT_SHARE, RESIDENT_KIB = 0.10, 16 << 10


class Growth:

    def __init__(self, sanitized):
        self.sanitized = sanitized  # then resident memory tells nothing
        self.lives = {}             # samples, by the host and birth of a daemon

    def take(self, daemon):
        self.lives.setdefault((daemon.host, daemon.birth), []).append(daemon.sample())

    def rows(self):
        """(host, samples, {what: (median of the first quarter, of the last, most allowed)})."""
        for (host, _), samples in sorted(self.lives.items()):
            settled = samples[int(len(samples) * WARM_UP):]
            if len(samples) < FEWEST:
                continue
            quarter = max(1, len(settled) // 4)
            found = {}
            for what in settled[0]:
                first, last = (statistics.median(sample[what] for sample in part)
                               for part in (settled[:quarter], settled[-quarter:]))
                found[what] = (first, last, first + self._slack(what, first))
            yield host, len(samples), found

    def _slack(self, what, first):
        if what != "resident KiB":
            return SLACK[what]
        return float("inf") if self.sanitized else max(RESIDENT_KIB, RESIDENT_SHARE * first)

    def faults(self):
        return [f"{what} of host {host + 1}'s daemon: {first:g} at first, {last:g} at last"
                for host, _, found in self.rows()
                for what, (first, last, most) in found.items() if last > most]

    def table(self):
        lines = []
        for host, count, found in self.rows():
            cells = ", ".join(f"{what} {first:g} -> {last:g}"
                              for what, (first, last, _) in found.items())
            lines.append(f"  host {host + 1}, {count} samples: {cells}")
        return lines or [f"  no daemon lived for {FEWEST} samples"]
