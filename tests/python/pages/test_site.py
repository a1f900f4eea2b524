# SPDX-License-Identifier: Apache-2.0
"""The documentation site builds without a warning, its links lead somewhere, it fetches nothing."""

import html.parser
import importlib
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import urllib.parse

import pytest
import spmdx


class Page(html.parser.HTMLParser):
    """Ids, links and what a browser loads of one page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads, self.text = set(), [], [], ""
        self.feed(path.read_text())

    def handle_data(self, data):
        self.text += data

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        rel = values.get("rel") or ""
        if tag == "link" and {"stylesheet", "preload", "icon", "preconnect"} & set(rel.split()):
            self.loads.append(values["href"])
        if tag in ("script", "img", "iframe", "source") and values.get("src"):
            self.loads.append(values["src"])


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    done = built(root, root, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def built(root, project, folder):
    """What became of a project that is built as `make docs` builds."""
    recipe = r"^docs: .*\n\t\$\(BIN\)/python -m mkdocs (.+)$"
    (options,) = re.findall(recipe, (root / "Makefile").read_text(), re.MULTILINE)
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", *options.split(), "--site-dir", str(folder)],
        cwd=project,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def pages(site):
    """{path: page} of the site."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def target(path, link):
    """The file and the anchor that a link of a page leads to; None where it leaves the site."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    there = path.parent / urllib.parse.unquote(parts.path) if parts.path else path
    return pathlib.Path(os.path.normpath(there)), urllib.parse.unquote(parts.fragment)


def broken(pages, site):
    """[(page, link)] of links that lead nowhere."""
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in page.links + page.loads:
            leads = target(path, link)
            if leads is None:
                continue
            there, anchor = leads
            here = pages.get(there)
            if not there.is_file() or (anchor and here and anchor not in here.ids | {"__top"}):
                found.append((str(path.relative_to(site)), link))
    return found


def test_every_link_and_every_anchor_exists(pages, site):
    assert len(pages) > 45 and sum(len(page.links) for page in pages.values()) > 1000
    assert broken(pages, site) == []


def test_a_warning_is_an_error(root, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: small\nplugins: []\n")
    page = tmp_path / "docs/index.md"
    page.write_text("[gone](gone.md)\n")
    done = built(root, tmp_path, tmp_path / "site")
    assert done.returncode == 1 and "'gone.md'" in done.stderr
    page.write_text("[here](index.md)\n")
    assert built(root, tmp_path, tmp_path / "site").returncode == 0


def test_a_broken_link_is_found(tmp_path):
    path = tmp_path / "a.html"
    path.write_text('<a href="b.html">b</a><a href="#no">no</a><a id="yes" href="#yes">yes</a>')
    assert broken({path: Page(path)}, tmp_path) == [("a.html", "b.html"), ("a.html", "#no")]


def test_nothing_is_loaded_from_elsewhere(pages, site):
    elsewhere = [link for page in pages.values() for link in page.loads if "//" in link]
    assert elsewhere == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert "url(http" not in styles and "@import" not in styles and "url(//" not in styles


def test_the_reference_has_every_public_name(pages, site):
    found = {module.name for module in pkgutil.iter_modules(spmdx.__path__)}
    public = {f"spmdx.{name}" for name in found if name[0] != "_" and name != "torch_xla"}
    assert {"spmdx.nn", "spmdx.data", "spmdx.debug"} <= public
    lacking = []
    for name in ["spmdx", *sorted(public)]:
        module, ids = importlib.import_module(name), pages[site / f"reference/{name}.html"].ids
        own = [key for key, value in vars(module).items() if is_of(value, module)]
        names = getattr(module, "__all__", own)
        called = [key for key in names if callable(getattr(module, key))]
        lacking += [f"{name}.{key}" for key in called if f"{name}.{key}" not in ids]
    assert lacking == []


def is_of(value, module):
    """Whether it is a public function or class that the module defines."""
    name = getattr(value, "__qualname__", "_")
    return name[0] != "_" and value.__module__ == module.__name__


def test_every_notebook_is_a_page(root, pages, site):
    notebooks = sorted((root / "examples/notebooks").glob("*.ipynb"))
    assert len(notebooks) >= 3
    for notebook in notebooks:
        page = site / "notebooks" / f"{notebook.stem}.html"
        text = page.read_text()
        assert "\x1b[" not in text and "Traceback" not in text
        pictures = [link for link in pages[page].loads if link.endswith(".png")]
        assert len(pictures) >= notebook.read_text().count('"image/png"'), notebook.name


def test_marks_are_read_not_shown(pages, site):
    seen = {path: page.text for path, page in pages.items()}
    assert [path for path, text in seen.items() if "<!--" in text or ":func:`" in text] == []
    jax = seen[site / "coming_from/jax.html"]
    assert "Not run by the tests: JAX is not installed." in jax


def test_pages_that_are_named_by_their_paths_are_links(pages, site):
    assert {"sharding.html", "project/security.html"} <= {
        link for name in ("index", "multi_node") for link in pages[site / f"{name}.html"].links
    }
    assert "../sharding.html" in pages[site / "coming_from/jax.html"].links
