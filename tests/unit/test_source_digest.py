"""Digests of code that is not imported: what they follow, and what they do not count."""

from __future__ import annotations

import ast
import itertools
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nbx_registry import digest, sourcetree
from nbx_registry.digest import SourceDigests, locate, source_digest
from nbx_registry.errors import NbxError, UnknownName

_NUMBERS = itertools.count()


class Package:
    """A package on the search path, written as a test goes."""

    def __init__(self, root: Path) -> None:
        self.name = f"made_{next(_NUMBERS)}"
        self.root = root / self.name
        self.write("__init__", "")

    def write(self, module: str, text: str) -> Path:
        path = self.root.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).replace("PKG", self.name))
        return path

    def digest(self, reference: str) -> str:
        return source_digest(f"{self.name}.{reference}")


@pytest.fixture
def package(tmp_path: Path, monkeypatch) -> Package:
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Package(tmp_path)
    found.write(
        "k",
        """
        '''Kernels.'''
        import numpy as np
        from . import helpers
        from .other import table, unused

        TILE = 16
        SPARE = 3

        def bind(context):
            '''Bind.'''
            # a comment
            return inner(context, TILE) + helpers.shift(table)

        def inner(context, tile):
            return np.add(context, tile)

        def neighbour(context):
            return SPARE
        """,
    )
    found.write("helpers", "def shift(x):\n    return x + 1\n\ndef idle(x):\n    return x\n")
    found.write("other", "table = {}\nunused = 1\ntable['a'] = 2\n")
    return found


def test_nothing_is_imported(package):
    package.digest("k:bind")
    locate(f"{package.name}.k:bind")
    assert not any(name.startswith(package.name) for name in sys.modules)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        pytest.param("k", "# a comment", "# another\n", id="comment"),
        pytest.param("k", "'''Bind.'''", "'''Bind it.'''", id="docstring"),
        pytest.param("k", "'''Kernels.'''", "", id="module-docstring"),
        pytest.param("k", "inner(context, TILE) + helpers", "(inner( context,\n        TILE ) + helpers", id="layout"),
        pytest.param("k", "SPARE = 3", "SPARE = 4", id="constant-of-a-neighbour"),
        pytest.param("k", "return SPARE", "return -SPARE", id="neighbour"),
        pytest.param("k", "import table, unused", "import table", id="name-not-used"),
        pytest.param("helpers", "    return x\n", "    return -x\n", id="function-not-reached"),
        pytest.param("other", "unused = 1", "unused = 2", id="constant-not-reached"),
        pytest.param("__init__", "", "'''A package.'''\nVERSION = 2\n", id="package"),
    ],
)
def test_what_is_not_computed_does_not_count(package, module, old, new):
    before = package.digest("k:bind")
    edit(package, module, old, new)
    assert package.digest("k:bind") == before


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        pytest.param("k", "TILE = 16", "TILE = 32", id="constant"),
        pytest.param("k", "TILE = 16", "TILE = 16.0", id="type-of-a-constant"),
        pytest.param("k", "np.add", "np.subtract", id="function-called"),
        pytest.param("k", "import numpy as np", "import cupy as np", id="import"),
        pytest.param("helpers", "x + 1", "x + 2", id="another-module"),
        pytest.param("other", "table = {}", "table = {0: 1}", id="value-imported"),
        pytest.param("other", "table['a'] = 2", "table['a'] = 3", id="statement-that-acts"),
        pytest.param("k", "def bind(context):", "def bind(context, x=1):", id="signature"),
        pytest.param("k", "def inner", "@np.vectorize\ndef inner", id="decorator"),
    ],
)
def test_what_is_computed_counts(package, module, old, new):
    before = package.digest("k:bind")
    edit(package, module, old, new)
    assert package.digest("k:bind") != before


def edit(package: Package, module: str, old: str, new: str) -> None:
    path = package.root / f"{module}.py"
    text = path.read_text()
    assert old in text
    # Layout may open a bracket that its line has to close.
    changed = text.replace(old, new, 1)
    if changed.count("(") > changed.count(")"):
        changed = changed.replace("shift(table)", "shift(table))")
    path.write_text(changed + "\n")


REACHES = {
    "import inside a function": ("def bind(c):\n    from .far import one\n    return one()\n", True),
    "module of the package by its full name": ("import PKG.far\ndef bind(c):\n    return PKG.far.one()\n", True),
    "module by another name": ("import PKG.far as f\ndef bind(c):\n    return f.one()\n", True),
    "relative module": ("from . import far\ndef bind(c):\n    return far.one()\n", True),
    "module used as a value": ("from . import far\ndef bind(c):\n    return getattr(far, c)()\n", True),
    "other function of the module": ("from . import far\ndef bind(c):\n    return far.two()\n", False),
    "star": ("from .far import *\ndef bind(c):\n    return one()\n", True),
    "through another module's import": ("from .near import one\ndef bind(c):\n    return one()\n", True),
    "reference in a string": ("def bind(c):\n    return c.load('PKG.far:one')\n", True),
    "module in a string": ("def bind(c):\n    return c.load_module('PKG.far')\n", True),
    "name taken by a branch": (
        "try:\n    from .far import one\nexcept ImportError:\n    one = None\ndef bind(c):\n    return one()\n",
        True,
    ),
    "table filled below": ("T = {}\ndef bind(c):\n    return T[c]()\nfrom . import far\nT['x'] = far.one\n", True),
    "table filled by a decorator": (
        "T = {}\ndef enter(f):\n    T[f.__name__] = f\n    return f\ndef bind(c):\n    return T[c]()\n"
        "@enter\ndef g():\n    from .far import one\n    return one()\n",
        True,
    ),
    "method of a class": (
        "from .far import one\nclass C:\n    def m(self):\n        return one()\ndef bind(c):\n    return C().m()\n",
        True,
    ),
    "default of an argument": ("from .far import one\ndef bind(c, f=one):\n    return f()\n", True),
    "mention in a docstring": ("def bind(c):\n    'PKG.far:one'\n    return c\n", False),
    "lazily, by the module": ("from . import lazy\ndef bind(c):\n    return lazy.thing()\n", True),
}


@pytest.mark.parametrize(("text", "reached"), REACHES.values(), ids=REACHES.keys())
def test_code_is_followed_as_python_would(package, text, reached):
    package.write("k", text)
    package.write("near", "from .far import one\n")
    package.write("lazy", "def __getattr__(name):\n    from .far import one\n    return one\n")
    package.write("far", "def one():\n    return 1\n\ndef two():\n    return 2\n")
    before = package.digest("k:bind")
    package.write("far", "def one():\n    return 10\n\ndef two():\n    return 2\n")
    assert (package.digest("k:bind") != before) == reached


def test_a_package_that_imports_its_own_modules_reaches_all_of_them(package):
    package.write("all.__init__", "from PKG.all import far\nTABLE = [m.one for m in (far,)]\n")
    package.write("all.far", "def one():\n    return 1\n")
    package.write("k", "from PKG.all import TABLE\ndef bind(c):\n    return TABLE[0]()\n")
    before = package.digest("k:bind")
    package.write("all.far", "def one():\n    return 10\n")
    assert package.digest("k:bind") != before


def test_a_cycle_of_modules_ends(package):
    package.write("a", "from . import b\ndef f():\n    return b.g()\n")
    package.write("b", "from . import a\ndef g():\n    return a.f()\n")
    before = package.digest("a:f")
    package.write("b", "from . import a\ndef g():\n    return -a.f()\n")
    assert package.digest("a:f") != before


def test_a_file_beside_the_module_that_it_names_counts(package):
    package.write(
        "k", "from pathlib import Path\ndef bind(c):\n    return Path(__file__).with_name('tile.cu').read_text()\n"
    )
    source = package.root / "tile.cu"
    source.write_text("one")
    before = package.digest("k:bind")
    source.write_text("two")
    assert package.digest("k:bind") != before


def test_other_packages_do_not_count(package):
    package.write("k", "import nbx_registry.errors\ndef bind(c):\n    return nbx_registry.errors.nearest(c, [])\n")
    package.digest("k:bind")
    assert [path.parent.name for path in digest._known[f"{package.name}.k:bind"].stamps] == [package.name]


def test_the_hosts_kernels_rest_on_the_host_backend_not_on_the_core():
    stamps = _stamps("nbx_registry.host.kernels.gaussian", package="nbx_registry")
    assert all("host" in path.parts or path.name in ("rounding.py", "infer.py") for path in stamps)


def _stamps(module: str, package: str) -> list[Path]:
    found = sourcetree.module(module)
    assert found is not None
    name = next(name for name, pieces in found.definitions.items() if isinstance(pieces[0].node, ast.FunctionDef))
    source_digest(f"{module}:{name}")
    return list(digest._known[f"{module}:{name}"].stamps)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("k:bnd", "unknown name 'bnd'; did you mean 'bind'"),
        ("none:bind", "there is no module"),
        ("k", "is no reference; write 'package.module:name'"),
        ("k:bind()", "is no reference"),
        ("k:a.b", "is no reference"),
    ],
)
def test_a_reference_to_nothing_is_named(package, reference, message):
    for look in (locate, source_digest):
        with pytest.raises(UnknownName, match=message):
            look(f"{package.name}.{reference}")


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(UnknownName, match=r"there is no module 'nobody_has_this.k' to read"):
        locate("nobody_has_this.k:bind")


def test_a_module_that_does_not_parse_is_named_with_its_line(package):
    path = package.write("k", "x = 1\ndef bind(:\n")
    with pytest.raises(NbxError, match="not Python") as caught:
        locate(f"{package.name}.k:bind")
    assert str(caught.value).startswith(f"{path}:2:")


def test_locate_tells_file_and_line(package):
    path = package.write("k", "\n\nfrom .helpers import shift\n\ndef bind():\n    pass\n")
    location = locate(f"{package.name}.k:bind")
    assert (location.path, location.line) == (path, 5)
    assert locate(f"{package.name}.k:shift").line == 3
    assert locate(f"{package.name}:helpers").path == package.root / "helpers.py"


def test_a_catalog_looks_at_each_file_once(package, monkeypatch):
    package.digest("k:bind")
    package.digest("k:neighbour")
    looked: list[Path] = []
    real = sourcetree.stamp
    monkeypatch.setattr(sourcetree, "stamp", lambda path: looked.append(path) or real(path))
    digests = SourceDigests()
    assert digests.of(f"{package.name}.k:bind") == package.digest("k:bind")
    looked.clear()
    digests = SourceDigests()
    digests.of(f"{package.name}.k:bind")
    digests.of(f"{package.name}.k:neighbour")
    digests.of(f"{package.name}.k:bind")
    assert len(looked) == len(set(looked))


def test_fifty_kernels_of_one_module_take_little(package):
    functions = "".join(f"def bind_{i}(c):\n    x = c + {i}\n    return common(x)\n" for i in range(50))
    package.write("k", "def common(x):\n    return x\n" + functions)
    begin = time.perf_counter()
    found = {package.digest(f"k:bind_{i}") for i in range(50)}
    assert len(found) == 50
    # 5 ms where nothing else runs; the bound leaves room for a busy machine.
    assert time.perf_counter() - begin < 0.1


def test_threads_that_ask_at_once_are_told_the_same() -> None:
    reference = "nbx_registry.host.kernels.attention:scaled_dot_product_attention"
    expected = digest.source_digest(reference)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            digest._known.clear()
            digest._graphs.clear()
            with ThreadPoolExecutor(16) as pool:
                assert set(pool.map(lambda _: digest.source_digest(reference), range(16))) == {expected}
    finally:
        sys.setswitchinterval(interval)
