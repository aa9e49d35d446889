#!/usr/bin/env python3
"""The parts of tools/soak.sh that can be tested without a daemon: what it draws, and its judgement."""

import collections
import pathlib
import sys
import time
import types
import unittest
import unittest.mock

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path[:0] = [str(TOOLS / "soak"), str(TOOLS)]
import episode  # noqa: E402
import growth  # noqa: E402
import plan  # noqa: E402
from jobs import Fault, RunningJob, named_ranks  # noqa: E402
from world import Trouble  # noqa: E402


def episodes(count=300, seed=1, with_lab=True):
    return [plan.Draw(seed, i, with_lab, 1).episode() for i in range(count)]


class PlanTest(unittest.TestCase):

    def test_the_same_seed_draws_the_same(self):
        self.assertEqual(episodes(), episodes())
        self.assertNotEqual(episodes(), episodes(seed=2))

    def test_an_episode_needs_no_other(self):
        self.assertEqual(plan.Draw(1, 250, True, 1).episode(), episodes()[250])

    def test_everything_comes_up(self):
        themes = {episode.theme for episode in episodes()}
        self.assertEqual(themes, {*plan.THEMES, *plan.LAB_THEMES})
        kinds = {event.kind for episode in episodes() for event in episode.events}
        self.assertEqual(kinds, {"kill", "abort", "freeze", "lose_daemon", "cut", "cut_briefly", "join",
                                 "loss", "settings", "look", "reload"})

    def test_nothing_is_cut_where_there_is_no_lab(self):
        self.assertLessEqual({episode.theme for episode in episodes(with_lab=False)},
                             set(plan.THEMES))

    def test_every_rank_is_in_one_process(self):
        for episode in episodes():
            for job in episode.jobs:
                ranks = [rank for process in job.processes for rank in process]
                self.assertEqual(sorted(ranks), list(range(job.ranks)))
                self.assertEqual(len(job.hosts), len(job.processes))

    def test_who_is_harmed_runs_without_an_end_and_the_others_do_not(self):
        for episode in episodes():
            harmed = set()
            for event in episode.events:
                if event.kind in ("kill", "abort"):
                    harmed.add(event.arguments[0])
                if event.kind == "lose_daemon":
                    harmed |= {job.number for job in episode.jobs if event.arguments[0] in job.hosts}
                if event.kind == "cut":
                    harmed |= {job.number for job in episode.jobs
                               if event.arguments[0] in job.hosts and len(set(job.hosts)) > 1}
            self.assertEqual(harmed, {job.number for job in episode.jobs if job.doomed}, episode)


def ended(processes, fault, doomed=True):
    """A job whose processes have said this."""
    job = RunningJob.__new__(RunningJob)
    job.plan = types.SimpleNamespace(number=0, ranks=3, seed=1, doomed=doomed)
    job.processes, job.fault, job.noise = processes, fault, []
    return job


def failed(text, result=6, members=(0, 1, 2), expected=True, clean_up="", phase="all_reduce"):
    return {"failed": {"result": result, "text": text, "members": list(members), "phase": phase,
                       "expected": expected, "clean_up": clean_up},
            "ended": {"code": 0, "signal": 0}}


KILLED = {"ended": {"code": -1, "signal": 9}}
DONE = {"done": {"descriptors": [9, 9]}, "ended": {"code": 0, "signal": 0}}


class JudgementTest(unittest.TestCase):

    def setUp(self):
        self.kill = Fault("the kill of rank 2", [(2,)], lambda own: {2})

    def judge(self, first, second, third=KILLED):
        return ended({(0,): first, (1,): second, (2,): third}, self.kill).judge()

    def test_all_are_told(self):
        self.assertEqual(self.judge(failed("rank 2 died"), failed("rank 2 died")), 2)

    def test_a_rank_of_another_communicator_is_the_same_process(self):
        self.assertEqual(named_ranks(failed("ranks 0 and 1", members=[2, 1])["failed"]), {2, 1})
        self.judge(failed("rank 0 died", members=[2, 1]), failed("rank 2 died"))

    def test_who_joins_may_be_told_of_the_host_instead(self):
        cut = Fault("host 1 being cut off", culprits=lambda own: {2}, hosts=lambda own: {0})
        for text, phase, told in (("heard of vm (10.77.0.1:7440)", "spcclCommInitRank", True),
                                  ("heard of vm (10.77.0.2:7440)", "spcclCommInitRank", False),
                                  ("heard of vm (10.77.0.1:7440)", "all_reduce", False)):
            with self.subTest(text, phase=phase):
                self.assertEqual(cut.is_told((0,), failed(text, phase=phase)["failed"]), told)

    def test_one_is_told_of_another_that_was_told(self):
        self.judge(failed("rank 2 died"), failed("rank 0 aborted", members=[0, 1]))

    def test_what_is_wrong_is_found(self):
        told = failed("rank 2 died")
        for what, second in {
                "nobody is named": failed("something"),
                "the wrong result": failed("rank 2 died", result=3),
                "before the kill": failed("rank 2 died", expected=False),
                "not cleaned up": failed("rank 2 died", clean_up="memory in use"),
                "a wrong result": {"wrong": {"text": "3 wrong"}, **told},
                "a crash": {"ended": {"code": -1, "signal": 11}},
                "killed, and nobody did": KILLED,
                "an end without a word": {"ended": {"code": 0, "signal": 0}},
                "done": DONE}.items():
            with self.subTest(what), self.assertRaises(Trouble):
                self.judge(told, second)

    def test_nobody_is_told_of_the_culprit(self):
        with self.assertRaises(Trouble):
            self.judge(failed("rank 1 aborted"), failed("rank 0 aborted"))

    def test_who_was_told_and_then_killed_too_proves_nothing(self):
        all_killed = Fault("the kill of ranks 1 and 2", [(1,), (2,)], lambda own: {1, 2})
        told = {**failed("rank 2 died"), **KILLED}
        self.assertEqual(ended({(1,): told, (2,): KILLED}, all_killed).judge(), 0)
        with self.assertRaises(Trouble):
            ended({(0,): failed("something"), (1,): told, (2,): KILLED}, all_killed).judge()

    def test_nobody_can_be_told_of_one_that_ended_before_it_gave_an_id(self):
        waits = failed("rank 2 has not come", result=0, phase="meet")
        self.assertEqual(self.judge(waits, waits), 2)

    def test_unharmed_jobs_must_be_done_and_close_what_they_open(self):
        ended({(0,): DONE}, None, doomed=False).judge()
        for said in (failed("rank 2 died"), {**DONE, "done": {"descriptors": [9, 90]}}):
            with self.assertRaises(Trouble):
                ended({(0,): said}, None, doomed=False).judge()

    def test_a_lost_daemon_is_a_system_error_of_its_own_ranks_only(self):
        fault = Fault("the end", culprits=lambda own: {2}, daemon_of=[2])
        self.assertTrue(fault.is_told((2,), failed("gone", result=2)["failed"]))
        self.assertFalse(fault.is_told((2,), failed("rank 0", result=6)["failed"]))
        self.assertFalse(fault.is_told((0,), failed("gone", result=2)["failed"]))
        self.assertTrue(fault.is_told((0,), failed("rank 2 on host")["failed"]))


class EventsTest(unittest.TestCase):

    def test_a_long_cut_that_comes_late_is_as_long(self):
        said_s = {}
        world = types.SimpleNamespace(
            lab=types.SimpleNamespace(say=lambda what, host: said_s.update({what: time.monotonic()})),
            on=lambda host: ["true"])
        events = episode.Events(world, [], collections.Counter())
        with unittest.mock.patch.object(episode, "FOR_LONG_S", 0.2):
            events.cut(1)
            events.join(1)  # due by then
        self.assertGreaterEqual(said_s["join"] - said_s["cut"], 0.2)


class GrowthTest(unittest.TestCase):
    CALM = {"descriptors": 40, "shared mappings": 3, "threads": 12, "files": 5, "mappings": 300,
            "resident KiB": 50_000}

    def faults(self, sanitized=False, **grown):
        found = growth.Growth(sanitized)
        for i in range(40):
            sample = {**self.CALM, **{key.replace("_", " "): change(i)
                                      for key, change in grown.items()}}
            found.take(types.SimpleNamespace(host=0, birth=0, sample=lambda sample=sample: sample))
        return found.faults()

    def test_what_stays_is_fine(self):
        self.assertEqual(self.faults(), [])

    def test_warming_up_is_fine(self):
        self.assertEqual(self.faults(descriptors=lambda i: 30 if i < 8 else 40), [])

    def test_descriptors_that_grow_are_not(self):
        self.assertEqual(len(self.faults(descriptors=lambda i: 40 + i // 5)), 1)

    def test_resident_memory_may_grow_a_little(self):
        grows = {"resident_KiB": lambda i: 50_000 + 400 * i}
        self.assertEqual(self.faults(**grows), [])
        grows = {"resident_KiB": lambda i: 50_000 + 4000 * i}
        self.assertEqual(len(self.faults(**grows)), 1)
        self.assertEqual(self.faults(sanitized=True, **grows), [])

    def test_few_samples_are_not_judged(self):
        found = growth.Growth(False)
        for i in range(growth.FEWEST - 1):
            found.take(types.SimpleNamespace(host=0, birth=0,
                                             sample=lambda i=i: {**self.CALM, "descriptors": i}))
        self.assertEqual(found.faults(), [])


if __name__ == "__main__":
    unittest.main()
