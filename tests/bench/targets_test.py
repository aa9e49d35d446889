#!/usr/bin/env python3
"""Checks what bench/across/targets.py says of a measurement. Run by ctest."""

import pathlib
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/across"))
import targets  # noqa: E402


class PeerOfTheTest:

    def label(self):
        return "peer"


class RowTest(unittest.TestCase):

    def row(self, times_as_fast):
        place = targets.Place(types.SimpleNamespace(rate="1gbit"), 2, 1)
        case = targets.Case(place, "all_reduce")
        return targets.row_of(case, 0.99, {0.99: [1000.0]}, (PeerOfTheTest(), times_as_fast))

    def test_a_target_that_is_missed_fails(self):
        self.assertIn("FAIL", self.row(24.0))
        self.assertNotIn("FAIL", self.row(26.0))

    def test_a_goal_that_is_missed_does_not(self):
        self.assertIn("not yet", self.row(26.0))
        self.assertIn("reached", self.row(33.0))


if __name__ == "__main__":
    unittest.main()
