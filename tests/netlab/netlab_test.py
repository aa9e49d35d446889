#!/usr/bin/env python3
"""Tests tools/netlab.sh: what it says of a lab is true of it, and nothing of it stays behind.

Exits with 77 (skipped) only where network namespaces are not permitted.
"""

import os
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import netlab as labs  # noqa: E402

NETLAB = str(labs.NETLAB)
SELF = str(pathlib.Path(__file__).resolve())
LAB = f"test-{os.getpid()}"
PORT = 7000


def netlab(*arguments, lab=LAB, **options):
    return subprocess.run([NETLAB, "--lab", lab, *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, **options)


def must(*arguments, lab=LAB):
    done = netlab(*arguments, lab=lab)
    assert done.returncode == 0, (arguments, done.returncode, done.stderr)
    return done.stdout.strip()


def namespaces():
    """Those with this test's name in theirs: other labs come and go meanwhile."""
    done = subprocess.run(["ip", "netns", "list"], text=True, stdout=subprocess.PIPE, check=True)
    return [line.split()[0] for line in done.stdout.splitlines() if LAB in line]


def links():
    return sorted(os.listdir("/sys/class/net"))


# What runs on the hosts: "netlab_test.py --on-host ROLE ...".

def serve_packets():
    """Prints "ready", counts packets until one says "end" (sent often), prints the count."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), 16 << 20)
    sock.bind(("", PORT))
    print("ready", flush=True)
    count = 0
    while select.select([sock], [], [], 20)[0]:
        data = sock.recv(100)
        if data == b"end":
            print(count, flush=True)
            return
        count += 1


def send_packets(address, count):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(int(count)):
        sock.sendto(b"packet", (address, PORT))


def serve_stream():
    """Prints "ready", then how many bits a second came through one TCP connection."""
    sock = socket.create_server(("", PORT))
    print("ready", flush=True)
    connection, _ = sock.accept()
    room, total, start = bytearray(1 << 20), 0, None
    while True:
        count = connection.recv_into(room)
        if count == 0:
            break
        start = start or time.monotonic()
        total += count
    print(8 * total / (time.monotonic() - start), flush=True)


def send_stream(address, size):
    sock = socket.create_connection((address, PORT), timeout=20)
    data, left = bytes(1 << 20), int(size)
    while left > 0:
        sock.sendall(data[:left])
        left -= len(data)


ROLES = {"serve_packets": serve_packets, "send_packets": send_packets,
         "serve_stream": serve_stream, "send_stream": send_stream}


class Host:
    """A role of this file running on a host."""

    def __init__(self, host, role, *arguments, lab=LAB):
        self.process = subprocess.Popen(
            [NETLAB, "--lab", lab, "exec", str(host), sys.executable, SELF, "--on-host", role,
             *map(str, arguments)], text=True, stdout=subprocess.PIPE)

    def line(self):
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


def packets_through(count, lab=LAB):
    """How many of `count` packets from host 1 to host 2 arrive; the end is said from host 2."""
    with Host(2, "serve_packets", lab=lab) as server:
        assert server.line() == "ready"
        must("exec", 1, sys.executable, SELF, "--on-host", "send_packets", must("addr", 2, lab=lab),
             count, lab=lab)
        end = ("import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
               f".sendto(b'end', ('127.0.0.1', {PORT}))")
        must("exec", 2, sys.executable, "-c", end, lab=lab)
        return int(server.line())


class LabTest(unittest.TestCase):
    """On one lab of three hosts at 200 Mbit/s."""

    @classmethod
    def setUpClass(cls):
        cls.links_before = links()
        must("up", 3, "200mbit")

    @classmethod
    def tearDownClass(cls):
        must("down")

    def test_hosts_have_their_addresses_and_nothing_else(self):
        for host in (1, 2, 3):
            self.assertEqual(must("addr", host), f"10.77.0.{host}")
            shown = must("exec", host, "ip", "-br", "-4", "addr", "show", "dev", "eth0")
            self.assertIn(f"10.77.0.{host}/", shown)
        self.assertEqual(links(), self.links_before)

    def test_exec_passes_arguments_and_the_exit_code(self):
        self.assertEqual(must("exec", 1, "printf", "%s|", "a b", "*"), "a b|*|")
        self.assertEqual(netlab("exec", 1, "sh", "-c", "exit 7").returncode, 7)

    def test_the_rate_is_the_links(self):
        with Host(2, "serve_stream") as server:
            self.assertEqual(server.line(), "ready")
            must("exec", 1, sys.executable, SELF, "--on-host", "send_stream", must("addr", 2),
                 20 << 20)
            rate = float(server.line())
        print(f"netlab_test: {rate / 1e6:.0f} Mbit/s through a link of 200", file=sys.stderr)
        self.assertLess(rate, 206e6)  # the bursts that the two ends of the link allow, included
        self.assertGreater(rate, 100e6)

    def test_loss_loses_its_share_both_ways_until_it_ends(self):
        must("loss", 1, 30)
        arrived = packets_through(4000)
        self.assertTrue(2600 < arrived < 3000, arrived)  # 2800, six standard deviations
        must("loss", 1, 0)
        must("loss", 2, "30.5")
        self.assertTrue(2580 < packets_through(4000) < 2980)
        must("loss", 2, 100)
        self.assertEqual(packets_through(100), 0)
        must("loss", 2, 0)
        self.assertEqual(packets_through(1000), 1000)

    def test_a_cut_host_is_cut_until_it_joins(self):
        self.assertEqual(packets_through(100), 100)
        must("cut", 2)
        must("cut", 2)
        self.assertEqual(packets_through(100), 0)
        must("join", 2)
        self.assertEqual(packets_through(100), 100)

    def test_up_again_is_refused_and_changes_nothing(self):
        again = netlab("up", 2, "1gbit")
        self.assertEqual(again.returncode, 1)
        self.assertIn("is up already", again.stderr)
        self.assertIn(f"{LAB} 3 200mbit", must("list").splitlines())

    def test_hosts_that_do_not_exist(self):
        for host in ("0", "4", "x", "", "-1", "99999999999999999999", "1;id"):
            for command in (["exec", host, "true"], ["addr", host], ["loss", host, "1"],
                            ["cut", host], ["join", host]):
                done = netlab(*command)
                self.assertEqual(done.returncode, 2, command)
                self.assertIn("has hosts 1 to 3", done.stderr)

    def test_labs_do_not_see_each_other(self):
        other = LAB + "b"
        try:
            must("up", 2, "none", lab=other)
            must("cut", 2, lab=other)
            self.assertEqual(packets_through(100), 100)
            self.assertEqual(packets_through(100, lab=other), 0)
        finally:
            must("down", lab=other)
        self.assertEqual(packets_through(100), 100)


class UpDownTest(unittest.TestCase):

    def test_down_leaves_nothing_and_spares_what_is_not_its_own(self):
        links_before = links()
        stranger = f"spccl-{LAB}-stranger"
        subprocess.run(["ip", "netns", "add", stranger], check=True)
        try:
            must("up", 2, "none")
            stopped = subprocess.Popen([NETLAB, "--lab", LAB, "exec", "1", "sh", "-c",
                                        "trap '' TERM; echo ready; sleep 1000"],
                                       stdout=subprocess.PIPE)
            self.assertEqual(stopped.stdout.readline(), b"ready\n")
            must("down")
            stopped.stdout.close()
            self.assertNotEqual(stopped.wait(timeout=10), 0)
            self.assertEqual(namespaces(), [stranger])
            self.assertEqual(links(), links_before)
            self.assertFalse(os.path.exists(f"/run/spccl-netlab/{LAB}"))
            must("down")  # again
        finally:
            subprocess.run(["ip", "netns", "del", stranger], check=True)
        self.assertEqual(namespaces(), [])

    def test_a_namespace_of_somebody_else_is_in_the_way(self):
        name = f"spccl-{LAB}-2"
        subprocess.run(["ip", "netns", "add", name], check=True)
        try:
            done = netlab("up", 3, "none")
            self.assertEqual(done.returncode, 1)
            self.assertIn("not this lab's", done.stderr)
            self.assertEqual(namespaces(), [name])
            must("down")
            self.assertIn(name, namespaces())
        finally:
            subprocess.run(["ip", "netns", "del", name], check=True)

    def test_wrong_use(self):
        for command, message in [
                (["up", 0, "1gbit"], "1 to 200 hosts"), (["up", 201, "none"], "1 to 200 hosts"),
                (["up", 2, "fast"], "no rate"), (["up", 2, "0gbit"], "no rate"),
                (["up", 2], "arguments"), (["exec", 1], "exec needs"), (["fly"], "unknown command"),
                (["--fast"], "unknown option")]:
            done = netlab(*command)
            self.assertEqual(done.returncode, 2, command)
            self.assertIn(message, done.stderr)
        self.assertEqual(netlab("down", lab="a/b").returncode, 2)
        self.assertEqual(netlab("exec", 1, "true").returncode, 1)
        self.assertIn("is not up", netlab("exec", 1, "true").stderr)

    def test_help_says_what_there_is(self):
        shown = must("--help")
        for word in ("up N RATE", "exec I", "loss I", "cut I", "join I", "addr I", "down"):
            self.assertIn(word, shown)

    def test_without_tools(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink("/usr/bin/id", f"{folder}/id")
            done = subprocess.run(["/bin/bash", NETLAB, "down"], text=True, stderr=subprocess.PIPE,
                                  timeout=60, env={"PATH": folder}, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is missing", done.stderr)

    def test_without_root(self):
        def become_nobody():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        script = pathlib.Path(NETLAB).read_text(encoding="utf-8")
        done = subprocess.run(["/bin/bash", "-s", "--", "down"], input=script, text=True, cwd="/",
                              stderr=subprocess.PIPE, timeout=60, preexec_fn=become_nobody,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("need root", done.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--on-host"]:
        ROLES[sys.argv[2]](*sys.argv[3:])
        sys.exit(0)
    if why := labs.reason_to_skip():
        print(f"netlab_test: skipped: {why}", file=sys.stderr)
        sys.exit(77)
    unittest.main()
