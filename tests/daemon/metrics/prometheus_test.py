#!/usr/bin/env python3
"""Prometheus' own tools on what spccld exposes and on deploy/prometheus: promtool checks the metrics, the alert
rules and every expression of the dashboard; a real Prometheus scrapes a daemon that works.

Usage: prometheus_test.py BUILD_DIR. Exits with 77 (skipped) where prometheus or promtool is missing.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
DEPLOY = ROOT / "deploy/prometheus"
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
PATIENCE = 60.0  # seconds; far above what anything takes


def run(*command, text=None, env=None):
    done = subprocess.run([str(word) for word in command], input=text, text=True, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
    return done.returncode, done.stdout


def get(address, path):
    """The status and the body of an answer."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def wait_for(what, fn):
    """What fn returns once that is true; errors of the network count as not yet."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            found = fn()
            if found:
                return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {PATIENCE} s")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A program that runs for as long as the context; its output is in a file."""

    def __init__(self, log, *command):
        self.log = log
        self.command = [str(word) for word in command]

    def __enter__(self):
        with self.log.open("w") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def find(self, pattern):
        """What the pattern's group matches in the log."""
        def look():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.command[0]} has ended:\n{self.log.read_text()}")
            found = re.search(pattern, self.log.read_text())
            return found and found.group(1)
        return wait_for(pattern, look)


@contextlib.contextmanager
def daemon(folder):
    """A daemon that has sent frames of two operations; gives the address of its metrics."""
    runtime = folder / "run"
    with Process(folder / "spccld.log", BUILD / "bin/spccld", "--runtime-dir", runtime, "--state-dir",
                 folder / "state", "--metrics-listen", "127.0.0.1:0") as running:
        address = running.find(r'serving metrics address="([^"]+)"')
        running.find(r"main: (serving) ")
        work(runtime)
        yield address


def work(runtime):
    env = dict(os.environ, SPCCL_RUNTIME_DIR=str(runtime))
    code, text = run(BUILD / "bin/spcclctl", "algo", "set", "ring", "--codec", "pici", env=env)
    assert code == 0, text
    for op in ("all_reduce", "all_gather"):
        code, text = run(BUILD / "bin/spccl-perf", "--op", op, "--ranks", "2", "--sizes", "1M", "--iters",
                         "3", "--warmup", "1", "--sparsity", "0.95", "--runtime-dir", runtime, env=env)
        assert code == 0, text


def samples_of(text):
    """{'name{labels}': value} of an exposition."""
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in text.splitlines() if line and not line.startswith("#")}


def exposed_names(text):
    """The names that a query may use: a histogram's are those of its series."""
    names = set()
    for name, kind in re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names.update(name + end for end in ends)
    return names


def names_in(expression):
    """The metrics that an expression reads."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    return set(re.findall(r"\b((?:spccl|process)_\w+|up)\b", bare))


def expressions_of(dashboard):
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found.append((panel["title"], target["expr"].replace("$__rate_interval", "5m")))
    return found


class ExposedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory(prefix="spccl.")))
        cls.address = cls.stack.enter_context(daemon(cls.folder))
        code, cls.text = get(cls.address, "/metrics")
        assert code == 200

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def test_promtool_finds_nothing_to_say(self):
        code, said = run("promtool", "check", "metrics", text=self.text)
        self.assertEqual((code, said), (0, ""))

    def test_promtool_would_say_something(self):
        code, said = run("promtool", "check", "metrics", text="# TYPE a_ms counter\na_ms 1\n")
        self.assertNotEqual((code, said), (0, ""))

    def test_the_work_is_counted(self):
        samples = samples_of(self.text)
        for op in ("all_reduce", "all_gather"):
            self.assertGreaterEqual(
                samples[f'spccl_operations_total{{op="{op}",dtype="float32",outcome="ok"}}'], 4)
            dense = samples[f'spccl_send_dense_bytes_total{{op="{op}",dtype="float32"}}']
            wire = samples[f'spccl_send_wire_bytes_total{{op="{op}",dtype="float32"}}']
            self.assertGreater(dense, 0)
            self.assertLess(wire, dense)
        self.assertGreater(samples['spccl_sends_total{format="pici"}'], 0)
        self.assertGreater(samples['spccl_codec_dense_bytes_total{work="encode",format="pici"}'], 0)
        self.assertGreater(samples['spccl_codec_seconds_total{work="take_in",format="pici"}'], 0)
        self.assertGreater(samples['spccl_link_wire_bytes_total{link="intra"}'], 0)
        self.assertGreater(samples["spccl_input_density_ratio_count"], 0)
        self.assertLess(samples["spccl_input_density_ratio_sum"],
                        0.1 * samples["spccl_input_density_ratio_count"])
        self.assertGreater(samples['spccl_operation_phase_seconds_count{phase="encode"}'], 0)
        self.assertEqual(samples["spccl_healthy"], 1)

    def test_the_daemon_says_that_it_is_well(self):
        self.assertEqual(get(self.address, "/healthz"), (200, "ok\n"))

    def test_the_rules_and_the_dashboard_read_what_is_exposed(self):
        exposed = exposed_names(self.text) | {"up"}
        read = {("rule", line) for line in re.findall(r"(?ms)expr: (.*?)\n\s+(?:for|labels):",
                                                      (DEPLOY / "spccl.rules.yml").read_text())}
        read |= set(expressions_of(json.loads((DEPLOY / "spccl.dashboard.json").read_text())))
        self.assertGreater(len(read), 40)
        for where, expression in sorted(read):
            with self.subTest(where=where, expression=expression):
                self.assertTrue(names_in(expression), "reads nothing")
                self.assertLessEqual(names_in(expression), exposed)

    def test_prometheus_scrapes_it(self):
        port = free_port()
        config = self.folder / "prometheus.yml"
        text = (DEPLOY / "prometheus.yml").read_text()
        self.assertIn("127.0.0.1:9464", text)
        config.write_text(text.replace("127.0.0.1:9464", self.address)
                          .replace("scrape_interval: 15s", "scrape_interval: 1s"))
        shutil.copy(DEPLOY / "spccl.rules.yml", self.folder)
        with Process(self.folder / "prometheus.log", "prometheus", f"--config.file={config}",
                     f"--storage.tsdb.path={self.folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}"):
            self.look_into(f"127.0.0.1:{port}")

    def look_into(self, prometheus):
        def query(expression):
            code, text = get(prometheus, "/api/v1/query?query=" + urllib.parse.quote(expression))
            answer = json.loads(text)
            self.assertEqual((code, answer["status"]), (200, "success"), text)
            return [(row["metric"], float(row["value"][1])) for row in answer["data"]["result"]]

        up = wait_for("a scrape", lambda: query('up{job="spccl"} == 1'))
        self.assertEqual(up[0][0]["instance"], self.address)
        self.assertEqual(query("spccl_healthy")[0][1], 1)
        done = query('sum by (op) (spccl_operations_total{outcome="ok"})')
        self.assertEqual({row[0]["op"] for row in done}, {"all_reduce", "all_gather"})
        self.assertGreaterEqual(query("scrape_samples_scraped")[0][1], 200)
        code, text = get(prometheus, "/api/v1/targets")
        self.assertEqual([target["lastError"] for target in
                          json.loads(text)["data"]["activeTargets"]], [""])
        # Every expression is also one that this Prometheus evaluates.
        for title, expression in expressions_of(
                json.loads((DEPLOY / "spccl.dashboard.json").read_text())):
            with self.subTest(panel=title):
                query(expression.replace("$instance", ".*"))


class DeployTest(unittest.TestCase):
    def test_the_configuration_and_the_rules_are_valid(self):
        code, said = run("promtool", "check", "config", DEPLOY / "prometheus.yml")
        self.assertEqual(code, 0, said)

    def test_the_alerts_fire_when_they_should(self):
        code, said = run("promtool", "test", "rules", DEPLOY / "spccl.rules.test.yml")
        self.assertEqual(code, 0, said)

    def test_an_alert_that_is_wrong_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copy(DEPLOY / "spccl.rules.test.yml", folder)
            rules = (DEPLOY / "spccl.rules.yml").read_text()
            (folder / "spccl.rules.yml").write_text(rules.replace("spccl_healthy == 0",
                                                                  "spccl_healthy == 1"))
            code, _ = run("promtool", "test", "rules", folder / "spccl.rules.test.yml")
            self.assertNotEqual(code, 0)

    def test_every_alert_is_tested_and_told(self):
        rules = (DEPLOY / "spccl.rules.yml").read_text()
        alerts = re.findall(r"- alert: (\w+)", rules)
        self.assertGreater(len(alerts), 5)
        tests = (DEPLOY / "spccl.rules.test.yml").read_text()
        fires = re.findall(r"alertname: (\w+)\n\s+exp_alerts:", tests)
        self.assertEqual(sorted(alerts), sorted(set(fires)))
        told = re.findall(r"(?m)^\| (Spccl\w+) \|", (DEPLOY / "README.md").read_text())
        self.assertEqual(alerts, told)

    def test_the_dashboard_is_whole(self):
        dashboard = json.loads((DEPLOY / "spccl.dashboard.json").read_text())
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            if panel["type"] != "row":
                self.assertTrue(panel["targets"] and panel["fieldConfig"]["defaults"]["unit"])
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")

    def test_promtool_parses_every_expression_of_the_dashboard(self):
        dashboard = json.loads((DEPLOY / "spccl.dashboard.json").read_text())
        rules = [{"record": f"panel:{i}", "expr": expression}
                 for i, (_, expression) in enumerate(expressions_of(dashboard))]
        self.assertGreater(len(rules), 30)
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "rules.yml"
            for broken in (False, True):
                more = [{"record": "panel:broken", "expr": "rate(spccl_healthy"}] if broken else []
                path.write_text(json.dumps({"groups": [{"name": "all", "rules": rules + more}]}))
                code, said = run("promtool", "check", "rules", path)
                self.assertEqual(code != 0, broken, said)


if __name__ == "__main__":
    for needed in ("prometheus", "promtool"):
        if shutil.which(needed) is None:
            print(f"SKIPPED: {needed} is not installed (tools/packages.sh test)")
            sys.exit(77)
    unittest.main(verbosity=2)
