# SPDX-License-Identifier: Apache-2.0
"""docs/threads.md names every file that makes a lock, a once flag or a thread."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/threads.md").read_text()
# One that is made: not std::unique_lock<std::mutex>, nor a reference to one.
MADE = re.compile(
    r"(?<![<\w:])(?:new )?std::(?:(?:\w+_)?mutex|once_flag|j?thread)\b(?!::)(?! *[&>])"
    r"|\bthread_local\b|\bthreading\.(?:R?Lock|Condition|Thread|Timer)\("
)
KINDS = {
    "static std::once_flag once;": True,
    "  mutable std::mutex mutex_;": True,
    "static auto* mutex = new std::mutex;": True,
    "std::recursive_mutex mutex;": True,
    "thread = std::thread([this] { work(); });": True,
    "std::thread(std::move(pass)).detach();": True,
    "_lock = threading.RLock()": True,
    "std::unique_lock<std::mutex>& lock": False,
    "std::mutex& recorder_mutex() {": False,
    "std::this_thread::sleep_for(poll);": False,
}


def sources() -> list[pathlib.Path]:
    csrc = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".h", ".cpp")]
    return sorted([*csrc, *(ROOT / "python/spmdx").rglob("*.py")])


def is_named(path: pathlib.Path) -> bool:
    """Itself, or the other half of its unit."""
    names = {path, path.with_suffix(".h"), path.with_suffix(".cpp")}
    return any(f"`{name.relative_to(ROOT)}`" in PAGE for name in names)


@pytest.mark.parametrize("line", KINDS)
def test_what_is_made_is_found(line):
    assert bool(MADE.search(line)) == KINDS[line]


def test_every_lock_and_every_thread_is_on_the_page():
    made = [path for path in sources() if MADE.search(path.read_text())]
    assert len(made) > 15
    assert [str(path.relative_to(ROOT)) for path in made if not is_named(path)] == []


def test_the_page_names_what_exists():
    named = re.findall(r"`((?:csrc|python)/[\w/.]+)`", PAGE)
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_headers_that_promise_the_words_of_the_page_use_them():
    headers = [p for p in sources() if p.suffix == ".h" and "docs/threads.md" in p.read_text()]
    assert len(headers) >= 4
    for header in headers:
        assert re.search(r"Any thread|Program threads", header.read_text()), header
