#!/usr/bin/env python3
"""Checks what the documents promise about the tree: examples are the compiled ones, links lead
somewhere, options that the README names exist. Run by ctest."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class DocumentsTest(unittest.TestCase):

    def test_the_first_program_is_the_compiled_example(self):
        blocks = re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        self.assertEqual(blocks, [(ROOT / "examples/first.c").read_text()])

    def test_the_readme_leads_to_every_document(self):
        text = (ROOT / "README.md").read_text()
        missing = [document.name for document in sorted((ROOT / "docs").glob("*.md"))
                   if f"](docs/{document.name})" not in text]
        self.assertEqual(missing, [])

    def test_links_lead_to_files_that_exist(self):
        broken = []
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text()):
                if not (document.parent / target).exists():
                    broken.append(f"{document.relative_to(ROOT)}: {target}")
        self.assertEqual(broken, [])

    def test_paths_named_in_the_architecture_exist(self):
        text = (ROOT / "docs/architecture.md").read_text()
        named = set(re.findall(r"`([a-z][\w/.-]*/[\w.-]*\w)`", text))
        self.assertGreater(len(named), 20)
        missing = [name for name in sorted(named) if not (ROOT / name).exists()]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
