# SPDX-License-Identifier: Apache-2.0
"""docs/glossary.md: alphabetical, names files that exist, and has every type of the headers."""

import re

import pytest

ROOMS = ("sharding", "graph", "rules/rule", "passes", "runtime")
# Types whose names mean what they mean everywhere.
PLAIN = {"Buffer", "Memory", "Message", "Param"}
TYPE = re.compile(r"^(?:class|struct|union|enum class)\s+(\w+)[^;{]*\{", re.MULTILINE)


@pytest.fixture(scope="module")
def groups(root):
    """{title: [(word, types, file)]} of the page."""
    page = (root / "docs" / "glossary.md").read_text()
    found = {}
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        assert lines.pop(0) == "| word | meaning | elsewhere | file |"
        found[title] = [entry(line) for line in lines]
    return found


def entry(line):
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert len(cells) == 4, line
    word, _, brackets = cells[0].partition(" (")
    assert re.fullmatch(r"[^.]+(\.\w[^.]*)*\.", cells[1]), f"not one sentence: {cells[1]}"
    return word, re.findall(r"`(\w+)`", brackets), cells[3].strip("`")


@pytest.fixture(scope="module")
def entries(groups):
    return [entry for group in groups.values() for entry in group]


@pytest.fixture(scope="module")
def declared(root):
    """{type: headers} of the core."""
    found = {}
    for room in ROOMS:
        for header in (root / "csrc" / room).rglob("*.h"):
            for name in TYPE.findall(header.read_text()):
                found.setdefault(name, set()).add(str(header.relative_to(root)))
    return found


def test_each_group_is_alphabetical_and_has_each_word_once(groups, entries):
    for title, group in groups.items():
        words = [word.casefold() for word, *_ in group]
        assert words == sorted(words), title
    all_words = [word for word, *_ in entries]
    assert len(all_words) == len(set(all_words))


def test_files_of_the_glossary_exist(root, entries):
    missing = [(word, file) for word, _, file in entries if not (root / file).is_file()]
    assert not missing


def test_every_type_is_in_the_glossary_or_plain(declared, entries):
    explained = {name for _, types, _ in entries for name in types}
    unexplained = set(declared) - explained - PLAIN
    assert not unexplained, f"write an entry of docs/glossary.md for {sorted(unexplained)}"
    gone = (explained | PLAIN) - set(declared)
    assert not gone, f"no header has {sorted(gone)}"
    assert not explained & PLAIN


def test_the_file_of_an_entry_has_the_type_that_it_names_first(declared, entries):
    elsewhere = [(w, t[0], file) for w, t, file in entries if t and file not in declared[t[0]]]
    assert not elsewhere
