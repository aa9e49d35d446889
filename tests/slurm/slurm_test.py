#!/usr/bin/env python3
"""deploy/slurm against Debian's Slurm: munged, slurmctld and three slurmd on this machine, jobs of an
ordinary user. Usage: slurm_test.py BUILD_DIR

Exits with 77 (skipped) where Slurm is missing, or unless run by root.
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import unittest

from lab import NODES, USER, Lab, wait_for

BUILD = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
ENDLESS = 1_000


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab(BUILD)

    @classmethod
    def tearDownClass(cls):
        cls.lab.close()

    def setUp(self):
        self.lab.reset()
        self.addCleanup(self.tell)

    def tell(self):
        """All logs, if the test has failed."""
        outcome = self._outcome.result
        if any(test is self for test, _ in outcome.failures + outcome.errors):
            print(self.lab.logs(), file=sys.stderr)

    def finish(self, job, code=0):
        output, errors = job.communicate(timeout=200)
        self.assertEqual(job.returncode, code, output + errors)
        return output

    def result(self, job):
        lines = [line for line in self.finish(job).splitlines() if line.startswith("{")]
        self.assertEqual(len(lines), 1)
        return json.loads(lines[0])

    def job_with_work(self, name, node="n1"):
        """The daemon's id of a job by this name, once its communicator has done something there."""
        number = wait_for(lambda: self.lab.job_number(name), f"job {name}")
        job_id = f"u{USER}.j{number}"

        def works():
            comms = self.lab.ctl(node, "comms")
            return comms and any(comm["job_id"] == job_id and comm["counters"]["ops"] > 0
                                 for comm in comms["comms"])
        wait_for(works, f"work of {job_id} on {node}")
        return job_id

    def test_a_job_on_three_nodes_trains_through_the_daemons_that_its_prolog_starts(self):
        self.assertEqual(self.lab.daemons(), [])
        job = self.lab.classifier("three", 3)
        result = self.result(job)
        self.assertEqual((result["ranks"], result["same_weights"]), (3, True))
        self.assertGreater(result["steps"], 10)
        wait_for(lambda: not self.lab.daemons(), "the epilogs stop all daemons")
        for node in NODES:
            self.assertEqual(os.listdir(self.lab.folder / node / "hooks/jobs"), [])
            self.assertNotIn("DRAIN", self.lab.state(node))

    def test_two_jobs_at_once_share_the_daemons(self):
        first = self.lab.classifier("first", ENDLESS)
        first_id = self.job_with_work("first")
        pids = [self.lab.pid(node) for node in NODES]
        # What a client says of itself is not believed.
        second = self.lab.classifier("second", 40, "env", "SLURM_JOB_ID=999999")
        second_id = self.job_with_work("second")
        jobs = {job["id"]: job for job in self.lab.ctl("n1", "jobs")["jobs"]}
        self.assertEqual(sorted(jobs), sorted([first_id, second_id]))
        for job in jobs.values():
            self.assertTrue(job["registered"])
            self.assertEqual((job["uid"], job["sessions"]), (USER, 1))
        self.assertTrue(self.result(second)["same_weights"])
        wait_for(lambda: all(len(self.lab.ctl(node, "jobs")["jobs"]) == 1 for node in NODES),
                 "the second job's end")
        self.assertEqual([self.lab.pid(node) for node in NODES], pids)  # nobody was restarted
        self.assertIsNone(first.poll())
        self.lab.slurm("scancel", first_id.split(".j")[1])
        first.communicate(timeout=100)
        wait_for(lambda: not self.lab.daemons(), "the epilogs stop all daemons")

    def test_a_job_killed_in_the_middle_of_a_collective_leaves_nothing(self):
        bystander = self.lab.classifier("bystander", ENDLESS)
        bystander_id = self.job_with_work("bystander")
        victim = self.lab.classifier("victim", ENDLESS, options=["--kill-on-bad-exit=0"])
        victim_id = self.job_with_work("victim")
        comms = self.lab.ctl("n2", "comms")["comms"]
        member = next(comm for comm in comms if comm["job_id"] == victim_id)["members"]
        os.kill(next(rank["pid"] for rank in member if rank["rank"] == 1), signal.SIGKILL)
        _, errors = victim.communicate(timeout=100)
        self.assertNotEqual(victim.returncode, 0)
        self.assertIn("rank 1 (pid", errors)  # the others were told who is gone
        wait_for(lambda: all([job["id"] for job in self.lab.ctl(node, "jobs")["jobs"]]
                             == [bystander_id] for node in NODES), "the victim's end")
        for node in NODES:
            self.assertEqual(self.lab.ctl(node, "status")["status"]["sessions"], 1)
        self.assertIsNone(bystander.poll())
        self.lab.slurm("scancel", "--signal=KILL", bystander_id.split(".j")[1])
        bystander.communicate(timeout=100)
        wait_for(lambda: not self.lab.daemons(), "the epilogs stop all daemons")

    def test_a_prolog_that_fails_soft_lets_the_job_run(self):
        self.lab.configure("n2", spccld="/nonexistent/spccld")
        output = self.finish(self.lab.submit("-N1", "-n1", "-w", "n2", "bash", "-c",
                                             "echo ran; echo dir=${SPCCL_RUNTIME_DIR-none}"))
        self.assertIn("ran\ndir=none\n", output)
        self.assertIn("spccl: not available on n2: /nonexistent/spccld is not installed", output)
        wait_for(lambda: self.lab.state("n2") == "IDLE", "n2 is usable")

    def test_a_prolog_that_fails_hard_drains_the_node_with_the_reason(self):
        run = self.lab.runtime_dir("n3")
        run.mkdir(parents=True)
        run.chmod(0o777)
        job = self.lab.submit("-N1", "-n1", "-w", "n3", "echo", "ran")
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        node = wait_for(lambda: "DRAIN" in self.lab.state("n3") and self.lab.node("n3"), "drained")
        self.assertIn(f"spccl: {run} may be written by others (mode 777)", node["Reason"])
        self.assertEqual(self.lab.state("n1"), "IDLE")


if __name__ == "__main__":
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun")
               if shutil.which(name, path="/usr/sbin:/usr/bin") is None]
    if missing:
        print(f"skipped: {', '.join(missing)} missing (packages munge, slurmctld, slurmd, "
              "slurm-client)")
        sys.exit(77)
    if os.geteuid() != 0:
        print("skipped: needs root, as slurmd does")
        sys.exit(77)
    unittest.main()
