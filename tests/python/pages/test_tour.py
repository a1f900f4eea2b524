# SPDX-License-Identifier: Apache-2.0
"""docs/tour.md: the functions of its table are in the files that it names."""

import re


def test_each_function_of_a_step_is_in_its_file(root):
    page = (root / "docs/tour.md").read_text()
    rows = re.findall(r"^\| ([\w ]*)\| `([\w:]+)` \| `([\w/.]+)` \| .* \|$", page, re.MULTILINE)
    assert len(rows) > 20
    assert [thread.strip() for thread, *_ in rows if thread.strip()] == [
        "program",
        "step",
        "queue",
        "step",
    ]
    lacking = []
    for _, name, path in rows:
        source = (root / path).read_text()
        inside = name.split("::")[-1]  # of a class that the file defines as a whole
        if f"{name}(" not in source and not re.search(
            rf"(?:[\w>&] |\b){inside}\(.*\{{|def {inside}\(|virtual .*\b{inside}\(", source
        ):
            lacking.append(name)
    assert lacking == []
