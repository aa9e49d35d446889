#!/usr/bin/env python3
"""Many communicators over the same daemons, at once and in turn: each keeps to itself, and nothing of
them stays behind."""

import unittest

import hosts
from hosts import Comm, FaultCase, await_true

# What a daemon may have grown by after a thousand communicators. Half a kilobyte each was seen, of the
# unique ids that it remembers, up to the 4,096 that it remembers at most; then nothing more.
MOST_GROWN_KIB = 1024


class ManyTest(FaultCase):
    HOSTS = 2

    def test_ten_communicators_at_once_of_two_jobs(self):
        jobs = [self.ranks(1, 2), self.ranks(1, 2)]  # each process is a job on its host
        comms = [Comm(f"{job}-{i}", processes) for job, processes in enumerate(jobs)
                 for i in range(5)]
        for comm in comms:
            comm.joined()
        self.assertEqual(len({comm["job_id"] for comm in self.daemons[1].comms()}), 2)
        for comm in comms:
            comm.sum(100_000)
        for comm in comms:
            comm.await_rounds(5)
        # The one job is killed in the middle; the other notices nothing.
        jobs[0][1].end()
        for comm in comms[:5]:
            self.assertIn("rank 1", comm.processes[0].told(comm.name).text)
        for comm in comms[5:]:
            comm.await_rounds(5)
            comm.stop()
        for comm in comms[5:]:
            comm.leave()

    def test_a_thousand_communicators_in_turn(self):
        processes = self.ranks(1, 2)
        daemons = list(self.daemons.values())

        def make_and_destroy(count):
            for _ in range(count):
                comm = Comm("a", processes).joined()
                comm.leave()

        make_and_destroy(500)  # what fills up once: caches, the list of events
        before = [daemon.holdings() for daemon in daemons]
        resident = [daemon.resident_kib() for daemon in daemons]
        make_and_destroy(1000)
        for daemon, held in zip(daemons, before):
            await_true(f"{daemon.name} holds {held} again, not {daemon.holdings()}",
                       lambda: daemon.holdings() == held)
            self.assertEqual(daemon.comms(), [])
        grown = [daemon.resident_kib() - kib for daemon, kib in zip(daemons, resident)]
        print(f"many_test: a thousand communicators; the daemons grew by {grown} KiB", flush=True)
        if not hosts.OPTIONS.sanitized:
            self.assertLess(max(grown), MOST_GROWN_KIB)
        self.expect_all_well(1, 2)

    def test_a_hundred_sessions_in_turn_leave_nothing(self):
        comm = self.summing(1, 2, name="stays")
        daemons = list(self.daemons.values())
        before = [daemon.holdings() for daemon in daemons]
        for _ in range(25):
            processes = self.ranks(1, 2, 1, 2)
            Comm("goes", processes).joined().sum(50_000)
            for process in processes:
                process.end()
        for daemon, held in zip(daemons, before):
            await_true(f"{daemon.name} holds {held} again, not {daemon.holdings()}",
                       lambda: daemon.holdings() == held)
        comm.await_rounds(3)
        comm.stop()
        comm.leave()


if __name__ == "__main__":
    hosts.main()
