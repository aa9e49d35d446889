#!/usr/bin/env python3
"""A rank, a daemon, a host or the network between them is lost: all who are left know it in time and
by name, nothing hangs, and a new communicator works at once. What is not lost for long is survived."""

import signal
import time
import unittest

import hosts
from hosts import FaultCase

# Longer than a packet takes to be sent again by itself, shorter than the limit (docs/adr/0008).
BRIEFLY_S = 1.0


class LossTest(FaultCase):

    def test_a_killed_rank(self):
        comm = self.summing(1, 2, 3, 2)
        killed_s = time.monotonic()
        comm.processes[3].end()
        self.expect_told(comm, [0, 1, 2], "rank 3", killed_s)
        self.expect_all_well(1, 2, 3, 2)

    def test_a_killed_daemon(self):
        comm = self.summing(1, 2, 3)
        killed_s = time.monotonic()
        self.daemons[2].end()
        self.expect_told(comm, [0, 2], "rank 1", killed_s)
        told = comm.processes[1].told("a")  # its own daemon is gone
        self.assertLess(told.at_s - killed_s, hosts.KNOWN_WITHIN_S)
        self.expect_all_well(1, 3)
        self.start_daemon(2)
        self.expect_all_well(1, 2, 3)

    def test_a_frozen_daemon(self):
        comm = self.summing(1, 2, 3)
        frozen_s = time.monotonic()
        self.daemons[3].send(signal.SIGSTOP)
        try:
            self.expect_told(comm, [0, 1], "rank 2", frozen_s)
            self.expect_all_well(1, 2)
        finally:
            self.daemons[3].send(signal.SIGCONT)
        self.assertNotEqual(comm.processes[2].told("a").result, 0)
        self.expect_all_well(1, 2, 3)

    def test_a_host_that_is_cut_off_for_ever(self):
        comm = self.summing(1, 2, 3)
        cut_s = time.monotonic()
        self.lab.say("cut", 2)
        try:
            self.expect_told(comm, [0, 2], "rank 1", cut_s)
            told = comm.processes[1].told("a")  # it lost all the others
            self.assertEqual(told.result, hosts.REMOTE_ERROR)
            self.assertRegex(told.text, "rank [02]")
            self.assertLess(told.at_s - cut_s, hosts.KNOWN_WITHIN_S)
            self.expect_all_well(1, 3)
        finally:
            self.lab.say("join", 2)
        self.expect_all_well(1, 2, 3)

    def test_a_host_that_is_cut_off_briefly(self):
        comm = self.summing(1, 2, 3)
        self.lab.say("cut", 2)
        rounds = comm.processes[0].rounds("a")
        time.sleep(BRIEFLY_S)  # the fault, not a way to wait
        self.assertLessEqual(comm.processes[0].rounds("a"), rounds + 1)
        self.lab.say("join", 2)
        comm.await_rounds(3)
        comm.stop()
        comm.leave()

    def test_all_ranks_of_a_node_killed_at_once(self):
        comm = self.summing(1, 2, 2, 3)
        killed_s = time.monotonic()
        for rank in (1, 2):
            comm.processes[rank].send(signal.SIGKILL)
        for rank in (0, 3):
            told = comm.processes[rank].told("a")
            self.assertRegex(told.text, "rank [12]")
            self.assertLess(told.at_s - killed_s, hosts.KNOWN_WITHIN_S)
        self.expect_all_well(1, 2, 2, 3)

    def test_a_rank_that_is_killed_while_all_meet(self):
        first, second, third = self.ranks(1, 2, 3)
        unique_id = first.unique_id()
        for rank, process in enumerate((first, second)):
            process.say(f"join a 3 {rank} {unique_id}")
        hosts.await_true("rank 1 is known", lambda: self.daemons[2].comms())
        killed_s = time.monotonic()
        second.end()
        third.say(f"join a 3 2 {unique_id}")
        for process in (first, third):
            told = process.told("a", "refused")
            self.assertIn("rank 1", told.text)
            self.assertLess(told.at_s - killed_s, hosts.KNOWN_WITHIN_S)
        self.expect_all_well(1, 2, 3)


class LossyLinkTest(FaultCase):
    RATE = "1gbit"

    def test_one_percent_of_the_packets_lost(self):
        for host in (1, 2, 3):
            self.lab.say("loss", host, 1)
        comm = self.summing(1, 2, 3)
        comm.await_rounds(20)
        comm.stop()
        comm.leave()


if __name__ == "__main__":
    hosts.main()
