#!/usr/bin/env python3
"""The prolog and the epilog of deploy/slurm by themselves, run as slurmd would, against the real
daemon. Usage: hooks_test.py BUILD_DIR

Exits with 77 (skipped) unless run by root.
"""

import concurrent.futures
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

from lab import USER, Hooks, wait_for

BUILD = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
JOBS = range(101, 109)


class HooksTest(unittest.TestCase):
    def setUp(self):
        self.hooks = Hooks(BUILD)
        self.addCleanup(self.hooks.close)

    def prolog(self, job, node="n1", uid=USER):
        return self.hooks.run("prolog", node, job, uid)

    def epilog(self, job, node="n1", uid=USER):
        return self.hooks.run("epilog", node, job, uid)

    def must(self, done):
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def start_daemon(self):
        """One that the prolog has not started."""
        run = self.hooks.runtime_dir("n1")
        run.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen([self.hooks.bin / "spccld", "--runtime-dir", run, "--state-dir",
                                    run.parent / "state", "--channels", "1"],
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_for(lambda: self.hooks.pid("n1"), "a daemon")
        return process

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is missing")
    def test_shellcheck_finds_nothing(self):
        source = pathlib.Path(__file__).resolve().parents[2]
        scripts = sorted((source / "deploy/slurm").glob("*.d/*"))
        self.assertEqual(len(scripts), 3)
        done = subprocess.run(["shellcheck", "-x", *scripts, source / "deploy/slurm/common.sh.in"],
                              cwd=source, text=True, stdout=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_many_jobs_at_once_share_one_daemon_that_goes_with_the_last(self):
        with concurrent.futures.ThreadPoolExecutor(len(JOBS)) as pool:
            for done in pool.map(self.prolog, JOBS):
                self.must(done)
            self.assertEqual(len(self.hooks.daemons()), 1)
            jobs = self.hooks.ctl("n1", "jobs")["jobs"]
            self.assertEqual(sorted(job["id"] for job in jobs), [f"u{USER}.j{n}" for n in JOBS])
            for done in pool.map(self.epilog, JOBS[1:]):
                self.must(done)
            self.assertEqual(len(self.hooks.daemons()), 1)  # one job is left
        self.assertIn("stopped spccld", self.must(self.epilog(JOBS[0])))
        self.assertEqual(self.hooks.daemons(), [])

    def test_twice_is_as_once(self):
        for _ in range(2):
            self.must(self.prolog(7))
        self.assertEqual(len(self.hooks.ctl("n1", "jobs")["jobs"]), 1)
        for _ in range(2):
            self.must(self.epilog(7))
        self.assertEqual(self.hooks.daemons(), [])
        self.must(self.epilog(8))  # one that never began

    def test_tasks_are_told_where_the_daemon_is(self):
        self.must(self.prolog(7))
        said = self.must(self.hooks.run("taskprolog", "n1", 7))
        self.assertEqual(said, f"export SPCCL_RUNTIME_DIR={self.hooks.runtime_dir('n1')}\n")
        self.assertEqual(self.must(self.hooks.run("taskprolog", "n1", 8)), "")  # another job

    def test_a_daemon_of_others_is_used_and_never_stopped(self):
        process = self.start_daemon()
        self.must(self.prolog(7))
        self.must(self.epilog(7))
        self.assertIsNone(process.poll())
        self.assertEqual(self.hooks.pid("n1"), process.pid)

    def test_a_daemon_that_serves_others_stays(self):
        self.must(self.prolog(7))
        # A session of somebody else, with no job.
        client = subprocess.Popen(
            [self.hooks.bin / "classifier", "--runtime-dir", self.hooks.runtime_dir("n1"),
             "--ranks", "1", "--bucket-bits", "12", "--per-class", "40", "--epochs", "1000"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(client.wait)
        self.addCleanup(client.terminate)
        wait_for(lambda: self.hooks.ctl("n1", "status")["status"]["sessions"], "a session")
        self.must(self.epilog(7))
        self.assertEqual(len(self.hooks.daemons()), 1)

    def test_one_that_others_have_started_anew_is_not_ours(self):
        self.must(self.prolog(7))
        os.kill(self.hooks.pid("n1"), signal.SIGKILL)
        wait_for(lambda: not self.hooks.daemons(), "no daemon")
        shutil.rmtree(self.hooks.runtime_dir("n1"))
        process = self.start_daemon()
        self.must(self.epilog(7))
        self.assertEqual(self.hooks.pid("n1"), process.pid)

    def test_a_soft_failure_lets_the_job_run_and_says_so(self):
        for changes, reason in (
                ({"spccld": "/nonexistent/spccld"}, "/nonexistent/spccld is not installed"),
                ({"config": "/nonexistent/x.toml"}, "spccld is not ready"),
                ({"start": "never"}, "no daemon runs at"),
                ({"colour": "red"}, "unknown key colour"),
                ({"start_timeout": "soon"}, "start_timeout takes seconds")):
            self.hooks.configure("n1", **{"start_timeout": 3, **changes})
            said = self.must(self.prolog(7))
            self.assertIn("the job runs without spccl", said)
            self.assertIn(reason, said)
        self.hooks.configure("n1", start="never")
        self.must(self.prolog(7))
        self.assertIn("print spccl: not available on n1: no daemon runs at",
                      self.must(self.hooks.run("taskprolog", "n1", 7)))
        self.must(self.epilog(7))

    def test_where_spccl_is_required_a_soft_failure_is_hard(self):
        self.hooks.configure("n1", start="never", required="yes")
        done = self.prolog(7)
        self.assertEqual(done.returncode, 1)
        self.assertIn("fault, draining n1: no daemon runs at", done.stdout)

    def test_a_folder_that_others_may_write_is_a_fault(self):
        self.hooks.runtime_dir("n1").mkdir(parents=True)
        self.hooks.runtime_dir("n1").chmod(0o777)
        done = self.prolog(7)
        self.assertEqual(done.returncode, 1)
        self.assertIn("may be written by others (mode 777)", done.stdout)

    def test_a_daemon_that_hangs_is_a_fault_for_both(self):
        self.must(self.prolog(7))
        os.kill(self.hooks.pid("n1"), signal.SIGSTOP)
        for script in (self.prolog, self.epilog):
            done = script(7)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("spccld does not answer", done.stdout)

    def note(self, job):
        """What the job's tasks would be told; empty where nothing."""
        path = self.hooks.folder / "n1/hooks/jobs" / str(job)
        return path.read_text() if path.exists() else ""

    def wrapper(self, name, text):
        """A program in place of one of ours."""
        path = self.hooks.folder / name
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)
        return path

    def test_a_job_that_is_registered_for_another_user_is_soft_for_both(self):
        self.must(self.prolog(6))
        self.assertIsNotNone(self.hooks.ctl("n1", "job", "register", "--id", "7", "--uid", "2000"))
        self.assertIn("registered for uid 2000", self.must(self.prolog(7)))
        said = self.must(self.epilog(7))
        self.assertIn("nothing to end: spcclctl: job 7 is registered for uid 2000", said)
        self.assertEqual(len(self.hooks.ctl("n1", "jobs")["jobs"]), 2)

    def test_reasons_are_words(self):
        self.must(self.prolog(7))
        real = self.hooks.bin / "spcclctl"
        broken = self.wrapper("broken", f"""
if [[ "$*" == *"job end"* ]]; then
  echo 'spcclctl: no space left on it' >&2
  echo '{{"schema":"spccl.v1","error":{{"code":"unhealthy"}}}}'
  exit 3
fi
exec {real} "$@"
""")
        self.hooks.configure("n1", spcclctl=broken)
        done = self.epilog(7)
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not be ended: spcclctl: no space left on it\n", done.stdout)
        self.hooks.configure("n1")
        self.must(self.epilog(7))

    def test_a_full_state_folder_keeps_no_job_from_ending(self):
        state = self.hooks.folder / "n1/state"
        state.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", state]
        if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("may not mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", state])
        self.must(self.prolog(6))
        for job in ("another", f"u{USER}.j6"):
            self.assertIsNotNone(self.hooks.ctl("n1", "job", "set", job, "--weight", "5"))
        with open(state / "fill", "wb", buffering=0) as fill:
            with self.assertRaises(OSError):
                while True:
                    fill.write(bytes(4096))
        register = ["job", "register", "--id", "9", "--uid", str(USER)]
        self.assertIsNone(self.hooks.ctl("n1", *register, "--weight", "5"))
        self.assertEqual(len(self.hooks.ctl("n1", "jobs")["jobs"]), 1)  # not half done
        self.assertIn("stopped spccld", self.must(self.epilog(6)))

    def slow_daemon(self, run="exec"):
        """One that starts when the file is there that this returns."""
        gate = self.hooks.folder / "gate"
        gate.unlink(missing_ok=True)
        self.hooks.configure("n1", start_timeout=1, spccld=self.wrapper(
            "slow", f'until [ -e {gate} ]; do sleep 0.1; done\n'
                    f'{run} {self.hooks.bin / "spccld"} "$@"\n'))
        return gate

    def test_a_daemon_that_starts_too_slowly_is_stopped_with_the_last_job(self):
        for run in ("exec", ""):
            gate = self.slow_daemon(run)
            self.assertIn("spccld is not ready", self.must(self.prolog(7)))
            self.assertIn("spccld is not ready", self.must(self.prolog(8)))  # starts no second one
            gate.touch()
            wait_for(lambda: self.hooks.pid("n1"), "a daemon")
            self.must(self.prolog(9))
            self.assertIn("ready", self.note(9))
            self.assertEqual(len(self.hooks.daemons()), 1)
            self.must(self.epilog(9))
            self.assertEqual(self.hooks.daemons(), [])
            for job in (7, 8):
                self.must(self.epilog(job))

    def test_a_daemon_that_is_never_ready_is_stopped_with_the_last_job(self):
        self.slow_daemon()
        for job in (7, 8):
            self.must(self.prolog(job))
        started = (self.hooks.folder / "n1/hooks/started").read_text().split()
        self.assertEqual(started[:2], ["detached", "-"])
        self.assertNotIn("stopped", self.must(self.epilog(7)))
        self.assertIn("stopped spccld, which was not ready yet", self.must(self.epilog(8)))
        wait_for(lambda: not pathlib.Path(f"/proc/{started[2]}").exists(), "no process")
        self.assertEqual(self.hooks.daemons(), [])

    def test_one_of_others_is_not_stopped_for_one_that_never_came(self):
        self.slow_daemon()
        self.must(self.prolog(7))
        process = self.start_daemon()
        self.must(self.prolog(8))
        for job in (7, 8):
            self.must(self.epilog(job))
        self.assertIsNone(process.poll())

    def hold_lock(self):
        lock = open(self.hooks.folder / "n1/hooks/lock", "a")
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def test_a_job_whose_epilog_had_no_lock_is_ended_by_the_next_script(self):
        self.hooks.configure("n1", lock_timeout=1)
        for script in (self.epilog, self.prolog):
            for job in (7, 8):
                self.must(self.prolog(job))
            lock = self.hold_lock()
            said = self.must(self.epilog(7))
            self.assertIn("job 7 is not ended yet", said)
            self.assertNotIn("runs without spccl", said)
            self.assertEqual(self.note(7), "")
            lock.close()
            self.assertIn(f"ended job u{USER}.j7, whose epilog could not", self.must(script(8)))
            self.must(self.epilog(8))
            self.assertEqual(self.hooks.daemons(), [])

    def test_a_job_that_runs_again_is_not_ended_for_its_last_epilog(self):
        self.hooks.configure("n1", lock_timeout=1)
        for job in (7, 8):
            self.must(self.prolog(job))
        lock = self.hold_lock()
        self.must(self.epilog(7))
        self.assertIn("has held the lock", self.must(self.prolog(7)))
        lock.close()
        self.must(self.epilog(8))
        jobs = self.hooks.ctl("n1", "jobs")["jobs"]
        self.assertEqual([job["id"] for job in jobs], [f"u{USER}.j7"])
        self.assertIn("stopped spccld", self.must(self.epilog(7)))

    def test_a_job_runs_without_a_daemon_that_drains(self):
        self.must(self.prolog(7))
        self.hooks.ctl("n1", "drain")
        self.assertIn("the job runs without spccl: spccld is draining", self.must(self.prolog(8)))
        self.assertIn("absent spccld is draining", self.note(8))
        for job in (8, 7):
            self.must(self.epilog(job))
        self.assertEqual(self.hooks.daemons(), [])

    def test_a_daemon_with_too_many_callers_is_no_fault(self):
        self.must(self.prolog(7))
        followers = [subprocess.Popen(
            [self.hooks.bin / "spcclctl", "--runtime-dir", self.hooks.runtime_dir("n1"), "events",
             "--follow"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(33)]
        def end_followers():
            for follower in followers:
                follower.kill()
                follower.wait()
        self.addCleanup(end_followers)
        wait_for(lambda: self.hooks.ctl("n1", "status") is None, "a refusal")
        self.assertIn("spccld has too many callers", self.must(self.prolog(8)))
        self.assertIn("job 7 is not ended yet", self.must(self.epilog(7)))
        self.hooks.configure("n1", required="yes")
        self.assertEqual(self.prolog(9).returncode, 1)
        end_followers()
        wait_for(lambda: self.hooks.ctl("n1", "status"), "an answer")
        self.assertIn("stopped spccld", self.must(self.epilog(8)))

    def test_the_daemon_runs_as_the_user_that_is_configured(self):
        self.hooks.configure("n1", user="nobody")
        self.must(self.prolog(7))
        pid = self.hooks.pid("n1")
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        self.assertIn(f"Uid:\t{USER}\t{USER}", status)
        self.assertIn("CapEff:\t0000000000080000", status)  # CAP_SYS_PTRACE alone
        self.must(self.epilog(7))
        self.assertEqual(self.hooks.daemons(), [])

    def test_the_daemon_sees_the_gpus_of_all_jobs(self):
        self.must(self.hooks.run("prolog", "n1", 7, CUDA_VISIBLE_DEVICES="1", GPU_DEVICE_ORDINAL="1",
                                 NVIDIA_VISIBLE_DEVICES="1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50",
                                 CUDA_MPS_PIPE_DIRECTORY="/tmp/mps"))
        environ = pathlib.Path(f"/proc/{self.hooks.pid('n1')}/environ").read_text()
        names = dict(line.split("=", 1) for line in environ.split("\0") if line)
        self.assertEqual({name: value for name, value in names.items()
                          if name.startswith(("CUDA_", "GPU_", "NVIDIA_"))},
                         {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps",
                          "CUDA_CACHE_PATH": f"{self.hooks.folder}/n1/state/cuda"})


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: needs root, as slurmd does")
        sys.exit(77)
    unittest.main()
