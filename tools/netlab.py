"""Hosts of tools/netlab.sh, for the tests and benchmarks that start daemons on them."""

import os
import pathlib
import random
import subprocess

NETLAB = pathlib.Path(__file__).resolve().parent / "netlab.sh"
PORT = 7440  # of the daemons, for each other


class Lab:
    """Hosts that are there within a `with`; the lab of this name must not be up."""

    def __init__(self, name, hosts, rate):
        self.name, self.hosts, self.rate = name, hosts, rate

    def __enter__(self):
        self.say("up", self.hosts, self.rate)
        return self

    def __exit__(self, *_):
        subprocess.run([NETLAB, "--lab", self.name, "down"], check=False)

    def on(self, host):
        """What a command is put behind to run on a host, as the very process that is started."""
        return [NETLAB, "--lab", self.name, "exec", host]

    def say(self, *words):
        """A command of netlab.sh to this lab, such as "cut", 2."""
        subprocess.run([NETLAB, "--lab", self.name, *map(str, words)], check=True)


def address(host):
    return f"10.77.0.{host}"


def make_certificates(spcclctl, folder, hosts):
    """An authority in `folder`, and a certificate for each of the hosts 1 to `hosts`."""
    names = [word for i in range(1, hosts + 1) for word in ("--host", f"node{i},{address(i)}")]
    subprocess.run([spcclctl, "tls", "init", "--dir", folder, *names], check=True,
                   stdout=subprocess.DEVNULL)


def daemon_arguments(folder, host="{}"):
    """Of a daemon on a host, with the certificates of `folder`."""
    return [f"--peers-listen={address(host)}:{PORT}", f"--peers-tls-ca={folder}/ca.pem",
            f"--peers-tls-cert={folder}/node{host}.pem", f"--peers-tls-key={folder}/node{host}.key"]


def reason_to_skip():
    """Why there can be no lab here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"spccl-probe-{random.randrange(1 << 30)}"
    done = subprocess.run(["ip", "netns", "add", probe], text=True, stderr=subprocess.PIPE,
                          check=False)
    if done.returncode != 0:
        return f"network namespaces are not permitted: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return None
