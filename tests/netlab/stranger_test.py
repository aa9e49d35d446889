#!/usr/bin/env python3
"""Who has not proved himself, sends rubbish or belongs to another communicator harms nobody: whoever
works goes on, and is told nothing."""

import os
import pathlib
import random
import socket
import subprocess
import sys
import unittest

import hosts
from hosts import FaultCase, await_true, netlab

SELF = str(pathlib.Path(__file__).resolve())


def send_rubbish(address, seed):
    """Connects to the address over and over, and sends what nobody there knows: nothing, random bytes, a TLS greeting with a random tail, HTTP/2 in the clear. What comes back is
    read until the other side has had enough."""
    random.seed(int(seed))
    host, port = address.rsplit(":", 1)
    hello = bytes.fromhex("16030100f8010000f40303")
    greetings = [b"", random.randbytes(7), random.randbytes(100_000),
                 hello + random.randbytes(244), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
                 bytes(4096), b"\xff" * 4096]
    for greeting in greetings * 4:
        with socket.create_connection((host, int(port)), timeout=20) as sock:
            sock.settimeout(0.2)
            try:
                sock.sendall(greeting)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            except OSError:
                pass  # it hung up on us, or says nothing: both are fine


class StrangerTest(FaultCase):

    def listening(self, daemon):
        """HOST:PORT of all that other hosts can connect to."""
        done = subprocess.run([*self.lab.on(str(daemon.host)), "ss", "-Hltnp"], text=True,
                              stdout=subprocess.PIPE, check=True)
        own = [line.split()[3] for line in done.stdout.splitlines() if f"pid={daemon.pid}," in line]
        return [port for port in own if not port.startswith("127.")]

    def test_rubbish_at_every_port(self):
        comm = self.summing(1, 2)
        seed = random.randrange(1 << 30)
        print(f"stranger_test: seed {seed}", flush=True)
        ports = self.listening(self.daemons[1])
        self.assertIn(f"{netlab.address(1)}:{netlab.PORT}", ports)
        self.assertGreater(len(ports), 1)  # UCX's
        strangers = [subprocess.Popen([*self.lab.on("3"), sys.executable, SELF, "--rubbish",
                                       port.replace("0.0.0.0", netlab.address(1)), str(seed)])
                     for port in ports]
        for stranger in strangers:
            self.assertEqual(stranger.wait(hosts.PATIENCE_S), 0)
        comm.await_rounds(3)
        comm.stop()
        comm.leave()
        self.expect_all_well(1, 2, 3)

    def test_a_daemon_of_another_authority(self):
        comm = self.summing(1, 2)
        self.daemons[3].end()
        other = pathlib.Path(self.folder.name) / "other-authority"
        netlab.make_certificates(hosts.OPTIONS.bin / "spcclctl", other, self.HOSTS)
        self.start_daemon(3, certificates=other)
        first, third = self.ranks(1, 3)
        third.say(f"join b 2 1 {first.unique_id()}")
        told = third.told("b", "refused")
        self.assertRegex(told.text, "certificate|authority")
        comm.await_rounds(3)
        comm.stop()
        comm.leave()

    def test_a_daemon_with_the_certificate_of_another_host(self):
        comm = self.summing(1, 2)
        self.daemons[3].end()
        stolen = pathlib.Path(self.folder.name) / "stolen"
        stolen.mkdir()
        for suffix in ("pem", "key"):
            os.symlink(self.certificates / f"node2.{suffix}", stolen / f"node3.{suffix}")
        os.symlink(self.certificates / "ca.pem", stolen / "ca.pem")
        self.start_daemon(3, certificates=stolen)
        first, third = self.ranks(1, 3)
        third.say(f"join b 2 1 {first.unique_id()}")
        self.assertIn("certificate", third.told("b", "refused").text)
        await_true("host 1 has refused it", lambda: self.daemons[1].has("a peer is refused"))
        comm.await_rounds(3)
        comm.stop()
        comm.leave()

    def test_an_id_of_another_communicator(self):
        comm = self.summing(1, 2)
        used, (third,) = comm.processes[0], self.ranks(3)
        # A right id that is in use, and one with a wrong secret.
        fresh = used.unique_id()
        other = self.ranks(1, 2)
        for rank, process in enumerate(other):
            process.say(f"join b 2 {rank} {fresh}")
        for process in other:
            process.await_line("joined b")
        third.say(f"join b 2 1 {fresh}")
        self.assertNotEqual(third.told("b", "refused").result, 0)
        wrong = used.unique_id()
        wrong = wrong[:40] + ("0" if wrong[40] != "0" else "1") + wrong[41:]
        third.say(f"join c 2 1 {wrong}")
        self.assertNotEqual(third.told("c", "refused").result, 0)
        comm.await_rounds(3)
        comm.stop()
        comm.leave()

    def test_a_peer_of_another_communicator_dies(self):
        stays, goes = self.summing(1, 2, name="stays"), self.summing(2, 3, name="goes")
        self.daemons[3].end()
        self.assertIn("rank 1", goes.processes[0].told("goes").text)
        stays.await_rounds(3)
        stays.stop()
        stays.leave()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rubbish"]:
        send_rubbish(*sys.argv[2:])
        sys.exit(0)
    hosts.main()
