"""Device files: facts with sources, stated once, found fast; and what malformed files get."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path

import pytest

from nbx_registry import dtypes, yamlfile
from nbx_registry.devicematch import overlap
from nbx_registry.devicetable import DeviceTable
from nbx_registry.errors import DuplicateError, FileError, MissingFact, UnknownName, nearest
from nbx_registry.runtime import LiveDevice
from nbx_registry.suggestions import Suggestion, hints

SCHEMA = """
keys:
  memory.bytes: {type: integer, unit: bytes, meaning: m}
  memory.bandwidth_bytes_per_s: {type: number, unit: bytes/s, meaning: m}
  multiprocessors: {type: integer, unit: count, meaning: m}
  async_copy.tma: {type: capability, meaning: m}
  memory.options: {type: strings, meaning: m}
  counts: {type: integers, unit: count, meaning: m}
  tolerance.*: {type: number, unit: of bound, meaning: m}
  matrix.*: {type: capability, meaning: m}
  matrix_unit.*: {type: matrix_unit, meaning: m}
"""
SOURCES = """
S: {document: D, publisher: P, read: dev}
T: {document: E, publisher: Q}
device: {document: D, publisher: P, read: dev}
measured: {document: D, publisher: P, read: measured}
"""
ARCH = """
arch: v_1
targets: [v_1, v_1a]
runtime: cuda
facts:
  async_copy.tma: {value: false, source: S}
  matrix_unit.m8n8k4: {value: {float16: [float16, float32], tf32: []}, source: S}
  matrix_unit.m16n8k8: {value: false, source: S}
"""
ONE = """
extends: v/arch/v_1
evidence_class: v-1
match: {names: [V One], archs: [v_1], multiprocessors: 4}
facts:
  memory.bytes: {value: 1000, source: [S, T], note: n}
  memory.bandwidth_bytes_per_s: {value: 4.8e12, source: T, read: "=", formula: 2 * 2.4e12}
"""


class Files:
    """A folder of device files, written as a test goes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def table(self, *overlays: Path) -> DeviceTable:
        return DeviceTable([self.root / "files"], overlays, self.root / "user")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path)
    found.write("files/schema.yml", SCHEMA)
    found.write("files/sources.yml", SOURCES)
    found.write("files/v/arch/v_1.yml", ARCH)
    found.write("files/v/one.yml", ONE)
    return found


def live(name: str = "V One", arch: str = "v_1", runtime: str = "cuda", **detected: int) -> LiveDevice:
    return LiveDevice(runtime=runtime, index=0, name=name, arch=arch, detected=detected)


# What files say.


def test_a_product_has_its_own_facts_and_its_architectures(files):
    device = files.table()["v/one"]
    assert (device.id, device.vendor, device.arch, device.targets) == ("v/one", "v", "v_1", ("v_1", "v_1a"))
    assert (device.runtime, device.evidence_class) == ("cuda", "v-1")
    assert [path.name for path in device.files] == ["one.yml", "v_1.yml"]
    assert device.file.name == "one.yml"
    assert device.fact("memory.bytes") == 1000
    assert device.fact("async_copy.tma") is False


def test_a_fact_knows_source_file_line_and_how_it_was_read(files):
    facts = files.table()["v/one"].facts
    fact = facts["memory.bytes"]
    assert (fact.source, fact.file.name, fact.line, fact.read, fact.note) == ("S, T", "one.yml", 6, "dev", "n")
    assert [str(document) for document in fact.documents] == ["D (P)", "E (Q)"]
    assert facts["memory.bandwidth_bytes_per_s"].formula == "2 * 2.4e12"
    assert facts["memory.bandwidth_bytes_per_s"].read == "="
    assert facts["async_copy.tma"].read == "dev"


def test_a_missing_fact_names_key_file_and_nearest(files):
    device = files.table()["v/one"]
    with pytest.raises(MissingFact, match=r"v/one states no 'multiprocessors' \(count\); .*/v/one.yml could state it"):
        device.fact("multiprocessors")
    with pytest.raises(MissingFact, match=r"no 'memory.byte'; did you mean 'memory.bytes'.*once a schema.yml"):
        device.source("memory.byte")
    with pytest.raises(MissingFact):
        device.capability("matrix.int8")


def test_expression_names_are_facts_and_what_the_device_is(files):
    values = files.table()["v/one"].values
    assert values["memory.bytes"] == 1000
    assert values["arch"] == "v_1"
    assert values["id"] == "v/one"
    assert values["target.v_1a"] is True
    assert values["target.v_2"] is False
    with pytest.raises(MissingFact):
        values["multiprocessors"]


def test_a_matrix_unit_is_its_operand_dtypes_in_expressions(files):
    device = files.table()["v/one"]
    assert device.values["matrix_unit.m8n8k4"] == (dtypes.get("float16"), "tf32")
    assert device.values["matrix_unit.m8n8k4.float16"] is True
    assert device.values["matrix_unit.m8n8k4.bfloat16"] is False
    assert device.values["matrix_unit.m16n8k8"] == ()
    assert device.values["matrix_unit.m16n8k8.float16"] is False
    assert device.fact("matrix_unit.m8n8k4") == {"float16": ("float16", "float32"), "tf32": ()}
    with pytest.raises(MissingFact):
        device.values["matrix_unit.m16n8k16.float16"]


def test_capabilities_are_told_from_other_facts(files):
    device = files.table()["v/one"]
    assert device.capability("matrix_unit.m8n8k4")
    assert not device.capability("matrix_unit.m16n8k8")
    assert device.capability("target.v_1a")
    with pytest.raises(UnknownName, match=r"'memory.bytes' of v/one is 1000, no capability"):
        device.capability("memory.bytes")
    assert [device.has(name) for name in ("matrix_unit.m8n8k4", "async_copy.tma", "matrix.int8")] == [
        True,
        False,
        False,
    ]


def test_the_digest_is_of_values_alone(files):
    before = files.table()["v/one"].digest
    files.write("files/v/one.yml", ONE.replace("note: n", "note: other").replace("source: T", "source: S"))
    assert files.table()["v/one"].digest == before
    files.write("files/v/one.yml", ONE.replace("1000", "1001"))
    assert files.table()["v/one"].digest != before


# The table.


def test_listing_reads_no_file_and_a_bad_file_spoils_itself_alone(files):
    files.write("files/v/broken.yml", "arch: [")
    table = files.table()
    assert list(table) == ["v/broken", "v/one"]
    assert "v/arch/v_1" not in table
    assert table["v/one"].arch == "v_1"
    with pytest.raises(FileError, match=r"broken.yml:"):
        table["v/broken"]


def test_a_file_is_read_once(files):
    table = files.table()
    assert table["v/one"] is table["v/one"]


def test_a_device_without_facts_reads_neither_schema_nor_sources(files, monkeypatch):
    files.write("files/v/bare.yml", "arch: v_1\nruntime: host\nevidence_class: v-0\nfacts: {}\n")
    read = []
    load = yamlfile.load
    monkeypatch.setattr(yamlfile, "load", lambda path: read.append(path.name) or load(path))
    bare = files.table()["v/bare"]
    assert read == ["bare.yml"]
    with pytest.raises(MissingFact, match=r"states no 'memory.bytes'"):
        bare.fact("memory.bytes")
    files.write("files/schema.yml", "keys: [")
    assert files.table()["v/bare"].arch == "v_1"
    assert [problem.partition(":")[0][-10:] for problem in files.table().check()] == ["schema.yml"]


def test_an_unknown_device_gives_the_nearest(files):
    table = files.table()
    with pytest.raises(UnknownName, match="unknown device 'v/on'; did you mean 'v/one'"):
        table["v/on"]
    assert table.get("v/on") is None
    assert table.get("v/one") is table["v/one"]


def test_a_name_that_goes_on_as_an_unknown_one_begins_is_the_nearest():
    assert nearest("nvidia/h200", ("nvidia/b200", "nvidia/h200-sxm", "nvidia/h200-nvl-x")) == (
        "; did you mean 'nvidia/h200-sxm'?"
    )


def test_two_files_for_one_device_are_refused_naming_both(files, tmp_path):
    other = files.write("other/v/one.yml", ONE)
    table = DeviceTable([tmp_path / "files", tmp_path / "other"])
    with pytest.raises(DuplicateError) as caught:
        table["v/one"]
    assert str(other) in str(caught.value)
    assert str(tmp_path / "files/v/one.yml") in str(caught.value)


def test_the_order_of_folders_changes_nothing(files, tmp_path):
    files.write("a/v/two.yml", ONE.replace("V One", "V Two").replace("1000", "7"))
    files.write("over/v/one.yml", "facts: {multiprocessors: {value: 4, source: S}}")
    one = DeviceTable([tmp_path / "a", tmp_path / "files"], [tmp_path / "over"])
    two = DeviceTable([tmp_path / "files", tmp_path / "a"], [tmp_path / "over"])
    assert list(one) == list(two)
    assert [one[id].digest for id in one] == [two[id].digest for id in two]


# Overlays, namespaces, the user's folder.


def test_an_overlay_adds_facts_of_its_own_namespace(files, tmp_path):
    files.write("acme/schema.yml", "namespace: acme\nkeys: {acme.pad_bytes: {type: integer, unit: bytes, meaning: m}}")
    files.write("acme/sources.yml", "ACME: {document: D, publisher: A}")
    overlay = files.write("acme/v/one.yml", "facts: {acme.pad_bytes: {value: 64, source: ACME}}")
    device = files.table(tmp_path / "acme")["v/one"]
    assert device.fact("acme.pad_bytes") == 64
    assert overlay in device.files


def test_an_overlay_of_an_architecture_reaches_its_products(files, tmp_path):
    files.write("over/v/arch/v_1.yml", "facts: {matrix.int8: {value: true, source: T}}")
    assert files.table(tmp_path / "over")["v/one"].capability("matrix.int8")


def test_a_fact_given_by_file_and_overlay_is_refused_naming_both(files, tmp_path):
    overlay = files.write("over/v/one.yml", "facts:\n  memory.bytes: {value: 1, source: S}")
    with pytest.raises(FileError) as caught:
        files.table(tmp_path / "over")["v/one"]
    assert str(caught.value).startswith(f"{overlay}:2: fact 'memory.bytes' is given twice; ")
    assert f"{tmp_path / 'files/v/one.yml'}:6 states it too" in str(caught.value)


def test_two_overlays_may_not_state_one_fact(files, tmp_path):
    for name in ("a", "b"):
        files.write(f"{name}/v/one.yml", "facts: {multiprocessors: {value: 4, source: S}}")
    with pytest.raises(FileError, match="fact 'multiprocessors' is given twice"):
        files.table(tmp_path / "a", tmp_path / "b")["v/one"]


def test_a_product_does_not_override_its_architecture(files):
    files.write("files/v/one.yml", ONE + "  async_copy.tma: {value: true, source: S}\n")
    with pytest.raises(FileError, match=r"v_1.yml:6: fact 'async_copy.tma' is given twice; .*one.yml:8 states it too"):
        files.table()["v/one"]
    files.write("files/v/one.yml", "runtime: hip\n" + ONE)
    with pytest.raises(FileError, match="runtime is given twice"):
        files.table()["v/one"]


def test_an_overlay_states_facts_only(files, tmp_path):
    files.write("over/v/one.yml", "runtime: hip")
    with pytest.raises(FileError, match="'runtime' is for the file that describes a device; this is an overlay"):
        files.table(tmp_path / "over")["v/one"]


def test_the_users_folder_overlays_known_devices_and_describes_others(files):
    files.write("user/v/one.yml", "facts: {multiprocessors: {value: 4, source: S}}")
    files.write("user/v/mine.yml", ONE.replace("V One", "V Mine"))
    table = files.table()
    assert list(table) == ["v/mine", "v/one"]
    assert table["v/one"].fact("multiprocessors") == 4
    assert table["v/mine"].match == {"names": ("V Mine",), "archs": ("v_1",), "multiprocessors": 4}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("namespace: acme\nkeys: {other.x: {type: capability, meaning: m}}", "outside the namespace 'acme'"),
        ("namespace: memory\nkeys: {memory.x: {type: capability, meaning: m}}", "taken by the common keys"),
        ("namespace: arch\nkeys: {}", "namespace 'arch' is taken: device.arch is no fact"),
        ("namespace: a.b\nkeys: {}", "is not one lower-case word"),
        ("keys: {x: {type: capability, meaning: m}}", "both describe the common keys"),
        ("namespace: acme\nkeys: {acme.pad: {type: integer, unit: bytes, meaning: m}}", "call it acme.pad_bytes"),
        (
            "namespace: acme\nkeys: {acme.rate: {type: number, unit: bytes/s, meaning: m}}",
            "call it acme.rate_bytes_per_s",
        ),
        ("namespace: acme\nkeys: {acme.x: {type: number, unit: GiB, meaning: m}}", "unit 'GiB' is none of bytes"),
        ("namespace: acme\nkeys: {acme.x: {type: number, meaning: m}}", "unit is missing"),
        ("namespace: acme\nkeys: {acme.x: {type: boolean, meaning: m}}", "type 'boolean' is none of"),
        ("namespace: acme\nkeys: {acme.x: {type: capability, unit: count, meaning: m}}", "a capability has no unit"),
        ("namespace: acme\nkeys: {acme.X: {type: capability, meaning: m}}", "not of the form word.word"),
        ("namespace: acme\nkeys: {acme.x: 1}", "keys.acme.x is an integer"),
        ("namespace: acme", "keys is missing"),
    ],
)
def test_a_bad_schema_fragment_is_refused(files, tmp_path, schema, message):
    files.write("acme/schema.yml", schema)
    table = files.table(tmp_path / "acme")
    (problem,) = table.check()
    assert message in problem
    assert str(tmp_path / "acme/schema.yml") in problem
    # It is that folder's matter: every device has its facts.
    assert table["v/one"].fact("memory.bytes") == 1000
    assert table.schema.find("acme.x") is None


def test_two_fragments_may_not_describe_one_key(files, tmp_path):
    for name in ("a", "b"):
        files.write(f"{name}/schema.yml", "namespace: acme\nkeys: {acme.x: {type: capability, meaning: m}}")
    table = files.table(tmp_path / "a", tmp_path / "b")
    (problem,) = table.check()
    assert re.search(r"key 'acme.x' is described by .*a/schema.yml and by .*b/schema.yml", problem)
    assert table.schema.find("acme.x") is None


def test_the_common_keys_and_sources_are_the_common_folders_wherever_it_lies(files, tmp_path):
    files.write("aaa/schema.yml", "namespace: acme\nkeys: {acme.x: {type: capability, meaning: m}}")
    files.write("aaa/sources.yml", "A: {document: D, publisher: P}")
    files.write("user/v/one.yml", "facts: {acme.x: {value: true, source: S}}")
    table = DeviceTable([tmp_path / "aaa", files.root / "files"], (), files.root / "user")
    assert table.check() == ()
    assert table["v/one"].fact("acme.x") is True


def test_a_second_schema_of_common_keys_is_the_one_with_fewer(files, tmp_path):
    files.write("aaa/schema.yml", "keys: {memory.bytes: {type: string, meaning: m}}")
    table = DeviceTable([tmp_path / "aaa", files.root / "files"])
    (problem,) = table.check()
    assert problem.endswith("aaa/schema.yml both describe the common keys; give one a namespace:")
    assert table["v/one"].fact("memory.bytes") == 1000


@pytest.mark.parametrize("key", ["acme.class", "acme.in", "acme._x"])
def test_a_key_that_no_condition_could_name_is_refused(files, tmp_path, key):
    files.write("acme/schema.yml", f"namespace: acme\nkeys: {{{key}: {{type: capability, meaning: m}}}}")
    (problem,) = files.table(tmp_path / "acme").check()
    assert f"no condition can name '{key}'" in problem


@pytest.mark.parametrize("name", ["schema.yml", "sources.yml", "suggestions.yml"])
def test_what_lies_where_a_file_should_is_told(files, tmp_path, name):
    (tmp_path / "acme" / name).mkdir(parents=True)
    (problem,) = files.table(tmp_path / "acme").check()
    assert f"{name}: cannot be read" in problem


def test_a_folders_source_tags_are_its_own(files, tmp_path):
    files.write("acme/sources.yml", "S: {document: D, publisher: A}")
    files.write("acme/v/one.yml", "facts: {multiprocessors: {value: 4, source: S}}")
    with pytest.raises(DuplicateError, match="source 'S' is known as D"):
        files.table(tmp_path / "acme")["v/one"]


# Malformed files.


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("memory.byts: {value: 1, source: S}", "unknown fact 'memory.byts'; did you mean 'memory.bytes'"),
        ("zzz: {value: 1, source: S}", "a number's key says its unit"),
        ("memory.bytes: 1", "fact 'memory.bytes' is an integer; write {value: ..., source: ...}"),
        ("memory.bytes: {value: 1}", "fact 'memory.bytes' has no source"),
        ("memory.bytes: {source: S}", "fact 'memory.bytes' has no value; leave the fact out"),
        ("memory.bytes: {value: 1, source: R}", "source 'R' is no known tag"),
        ("memory.bytes: {value: 1, source: []}", "source is an empty list"),
        ("memory.bytes: {value: 1, source: 3}", "source is an integer; write a tag"),
        (
            "memory.bytes: {value: 1, source: S, red: dev}",
            "unknown key 'red' in fact 'memory.bytes'; did you mean 'read'",
        ),
        ("memory.bytes: {value: 1, source: S, read: device}", "read 'device' is none of vendor, dev"),
        ("memory.bytes: {value: 1, source: S, read: '='}", "read '=' and formula go together"),
        ("memory.bytes: {value: 1, source: S, formula: '1'}", "read '=' and formula go together"),
        ("memory.bytes: {value: 1, source: ''}", "source is an empty string"),
        ("memory.bytes: {value: 1, source: S, read: '=', formula: ''}", "formula is an empty string"),
        ("memory.bytes: {value: 1, source: device}", "source 'device' is of a day; write date: YYYY-MM-DD"),
        ("memory.bytes: {value: 1, source: [S, measured]}", "source 'measured' is of a day"),
        ("memory.bytes: {value: 1, source: S, date: tomorrow}", "date 'tomorrow' is no day; write YYYY-MM-DD"),
        ("memory.bytes: {value: 1.5, source: S}", r"is an integer, zero or more \(bytes\); got 1.5, a number"),
        ("memory.bytes: {value: -1, source: S}", "zero or more .*; got -1"),
        ("memory.bytes: {value: true, source: S}", "got True, a boolean"),
        ("memory.bytes: {value: '1', source: S}", "got '1', a string"),
        ("memory.bytes: {value: , source: S}", "got empty"),
        ("memory.bytes: {value: [1], source: S}", "got a list"),
        ("memory.bandwidth_bytes_per_s: {value: .inf, source: S}", "is a finite number"),
        ("memory.bandwidth_bytes_per_s: {value: 0, source: S}", r"a finite number, above zero \(bytes/s\); got 0"),
        ("memory.bandwidth_bytes_per_s: {value: -1.5, source: S}", r"above zero \(bytes/s\); got -1.5, a number"),
        (
            "memory.bandwidth_bytes_per_s: {value: 4.8, source: S}",
            "in full like 3.35e12; got 4.8, and no device is that",
        ),
        ("memory.bytes: {value: 24e9, source: S}", "got 24000000000.0, a number; write 24000000000"),
        ("multiprocessors: {value: 0, source: S}", r"an integer, above zero \(count\); got 0"),
        ("counts: {value: [4, 0], source: S}", r"a list of integers, above zero \(count\); got a list"),
        ("memory.bandwidth_bytes_per_s: {value: .nan, source: S}", "is a finite number"),
        ("async_copy.tma: {value: 1, source: S}", "is a capability, true or false; got 1"),
        ("matrix_unit.m8n8k4: {value: true, source: S}", "is a matrix unit: false, or a mapping"),
        ("matrix_unit.m8n8k4: {value: {}, source: S}", "is a matrix unit"),
        ("matrix_unit.m8n8k4: {value: {float16: float32}, source: S}", "is a matrix unit"),
        ("matrix_unit.m8n8k4: {value: {Float16: []}, source: S}", "is a matrix unit"),
        ("memory.options: {value: [1], source: S}", "is a list of strings"),
        ("counts: {value: [1, x], source: S}", "is a list of integers"),
        (
            "tolerance.matmul: {value: 1.5, source: S}",
            r"'tolerance.matmul' is at most 1 \(of bound\); got 1.5: .* a looser bound is a waiver of conformance",
        ),
        ("tolerance.matmul: {value: 0, source: S}", r"a finite number, above zero \(of bound\); got 0"),
        ("tolerance.matmul: {value: -0.5, source: S}", "above zero"),
    ],
)
def test_a_bad_fact_is_refused_with_file_line_and_way_out(files, facts, message):
    path = files.write("files/v/two.yml", f"extends: v/arch/v_1\nevidence_class: v-2\nfacts:\n  {facts}\n")
    # The architecture states some of the keys already: what is wrong inside the file comes first.
    with pytest.raises(FileError, match=message) as caught:
        files.table()["v/two"]
    assert str(caught.value).startswith(f"{path}:4: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extend: v/arch/v_1", "1: unknown key 'extend' in device file; did you mean 'extends'"),
        ("extends: v/two\nevidence_class: c", "1: 'v/two' extends itself; name an architecture, like v/arch/"),
        ("extends: v/arch/v_9\nevidence_class: c", "1: extends 'v/arch/v_9', for which there is no file; did you mean"),
        ("extends: v/one\nevidence_class: c", "1: extends 'v/one', a product; only architectures"),
        ("extends: [v/arch/v_1]", "1: extends is a list; write a file's id"),
        ("extends: v/arch/v_1", "1: evidence_class is missing"),
        ("id: v/two\nextends: v/arch/v_1", "1: leave id out: it is where the file lies, <vendor>/<product>.yml"),
        ("settings_from: [v/one]", "1: settings_from is a list; write a name"),
        ("arch: 3", "1: arch is an integer; write a name"),
        ("targets: sm", "1: targets is a string; write a list of compile targets"),
        ("match: [V]", "1: match is a list; write a mapping"),
        ("match: {name: [V]}", "1: unknown key 'name' in match; did you mean 'names'"),
        ("match: {names: V}", "1: match.names is a string; write a list of strings"),
        ("match: {multiprocessors: many}", "1: match.multiprocessors is a string; write a count"),
        ("facts: [a]", "1: facts is a list; write a mapping"),
        ("sources: {R: x}", "1: sources.R is a string; write {document"),
        ("sources: {R: {document: D}}", "1: sources.R: publisher is missing"),
        ("sources: {S: {document: D, publisher: P}}", "1: source 'S' is given twice; it is known as D"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_way_out(files, text, message):
    path = files.write("files/v/two.yml", text)
    with pytest.raises(FileError) as caught:
        files.table()["v/two"]
    assert f"{path}:{message}" in str(caught.value)


def test_extends_that_goes_round_is_named(files):
    files.write("files/v/arch/a.yml", "extends: v/arch/b")
    files.write("files/v/arch/b.yml", "extends: v/arch/a")
    files.write("files/v/two.yml", "extends: v/arch/a")
    with pytest.raises(FileError, match="extends goes round in a circle: v/two -> v/arch/a -> v/arch/b -> v/arch/a"):
        files.table()["v/two"]


@pytest.mark.parametrize(
    ("value", "formula", "complaint"),
    [
        ("4.8e12", "2 * 2.4e12", None),
        ("4.78e12", "2 * 2.3899e12", None),
        ("4.7e12", "2 * 2.4e12", "2 * 2.4e12 is 4800000000000.0, and the value 4700000000000.0"),
        ("4.8e12", "multiprocessors * 1.2e12", None),
        ("4.8e12", "multiprocesors * 1.2e12", "unknown fact 'multiprocesors'; did you mean 'multiprocessors'"),
        ("4.8e12", "memory.options", None),
        ("4.8e12", "import os", "its formula cannot be computed: expression 'import os'"),
        ("4.8e12", "'x'", "'x' is x, and the value"),
        ("4.8e12", "1 / 0", "its formula cannot be computed"),
    ],
)
def test_arithmetic_is_done_again(files, value, formula, complaint):
    fact = f'memory.bandwidth_bytes_per_s: {{value: {value}, source: T, read: "=", formula: "{formula}"}}'
    one = ONE.partition("  memory.bandwidth")[0] + f"  {fact}\n  multiprocessors: {{value: 4, source: S}}\n"
    path = files.write("files/v/one.yml", one)
    problems = files.table().check()
    assert len(problems) == (complaint is not None)
    for problem in problems:
        assert problem.startswith(f"{path}:7: fact 'memory.bandwidth_bytes_per_s': ")
        assert str(complaint) in problem


@pytest.mark.parametrize("runtime", ["cpu", "two words", "my-runtime", "''"])
def test_a_runtime_that_nobody_could_bring_is_refused(files, runtime):
    files.write("files/v/two.yml", f"arch: a\nruntime: {runtime}\nevidence_class: c")
    with pytest.raises(FileError, match=r"two.yml:2: runtime"):
        files.table()["v/two"]


def test_all_that_a_head_lacks_is_told_at_once(files):
    path = files.write("files/v/two.yml", "runtime: cuda\nfacts: {}\n")
    with pytest.raises(FileError) as caught:
        files.table()["v/two"]
    assert str(caught.value).startswith(f"{path}:1: arch and evidence_class are missing; state them here")


def test_a_file_where_the_users_folder_should_be_is_told(files):
    (files.root / "user").write_text("")
    (problem,) = files.table().check()
    assert problem == f"{files.root / 'user'}: no folder, and so no folder of device files; move it away"


def test_a_folder_that_may_not_be_looked_for_has_no_files(files):
    table = DeviceTable([files.root / "files"], (), files.root / ("long" * 200))
    assert table.check() == ()
    assert list(table) == ["v/one"]


def test_a_pipe_is_no_file(files):
    path = files.root / "files/v/two.yml"
    os.mkfifo(path)
    with pytest.raises(FileError, match=r"two.yml: cannot be read: it is a pipe"):
        files.table()["v/two"]


def test_a_long_chain_of_extends_is_refused(files):
    for i in range(12):
        files.write(f"files/v/arch/c{i}.yml", f"extends: v/arch/c{i + 1}")
    files.write("files/v/two.yml", "extends: v/arch/c0")
    with pytest.raises(FileError, match="more than 8 files extend each other"):
        files.table()["v/two"]


def test_a_file_may_describe_sources_of_its_own(files):
    files.write(
        "files/v/two.yml",
        """
        extends: v/arch/v_1
        evidence_class: c
        sources: {R: {document: D, publisher: P, read: 3p}}
        facts: {memory.bytes: {value: 1, source: R}}
        """,
    )
    assert files.table()["v/two"].facts["memory.bytes"].read == "3p"


def test_check_reads_everything_and_tells_each_problem_once(files, tmp_path):
    assert files.table().check() == ()
    files.write("files/v/arch/v_1.yml", "arch: [")
    files.write("files/v/Two.yml", ONE)
    files.write("files/v/three.yaml", ONE)
    files.write("files/lost.yml", ONE)
    files.write("over/w/absent.yml", "facts: {zzz: {value: 1, source: S}}")
    problems = files.table(tmp_path / "over").check()
    told = "\n".join(problems)
    for part in (
        "three.yaml: not read",
        "lost.yml: not read",
        "'v/Two' is no id",
        "unknown fact 'zzz'",
    ):
        assert part in told
    assert sum("arch/v_1.yml:" in problem for problem in problems) == 1


def test_there_may_be_no_bytes_of_something(files):
    files.write(
        "files/v/two.yml", "extends: v/arch/v_1\nevidence_class: c\nfacts: {memory.bytes: {value: 0, source: S}}"
    )
    assert files.table()["v/two"].fact("memory.bytes") == 0


def test_headings_with_nothing_under_them_state_nothing(files):
    files.write("files/v/two.yml", "extends: v/arch/v_1\nevidence_class: c\nsources:\n  # S: none\nfacts:\n  # none\n")
    table = files.table()
    assert table["v/two"].facts.keys() == table.architecture_facts("v/arch/v_1").keys()
    assert table["v/two"].extends == "v/arch/v_1"


def test_check_tells_files_that_match_one_card_and_files_that_nothing_reads(files):
    files.write("files/v/two.yml", ONE.replace("names: [V One], ", ""))
    files.write("files/v/three.yml", ONE.replace("multiprocessors: 4", "multiprocessors: 5"))
    files.write("user/v/more/four.yml", ONE)
    told = files.table().check()
    one, two = (files.root / f"files/v/{name}.yml" for name in ("one", "two"))
    assert [problem for problem in told if "match the same card" in problem] == [
        f"{one} and {two} match the same card; make their match rules differ"
    ]
    assert [problem.partition(": ")[2][:8] for problem in told if "four.yml" in problem] == ["not read"]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({}, {"names": ("A",)}, True),
        ({"names": ("A", "B")}, {"names": ("B",)}, True),
        ({"names": ("A",)}, {"names": ("B",)}, False),
        ({"names": ("A",), "multiprocessors": 4}, {"archs": ("x",)}, True),
        ({"names": ("A",), "multiprocessors": 4}, {"names": ("A",), "multiprocessors": 8}, False),
        ({"archs": ("x",), "multiprocessors": 4}, {"archs": ("y",), "multiprocessors": 4}, False),
    ],
)
def test_rules_overlap_where_some_card_would_be_taken_by_both(one, other, both):
    assert overlap(one, other) is both
    assert overlap(other, one) is both


def test_settings_come_from_a_product_of_the_same_class(files):
    files.write("files/v/two.yml", ONE.replace("V One", "V Two") + "settings_from: v/one\n")
    table = files.table()
    assert table["v/two"].settings_from == "v/one"
    assert table["v/one"].settings_from is None
    assert table.check() == ()
    for wrong, hint in (("v/on", "did you mean 'v/one'"), ("v/arch/v_1", ""), ("v/other", "")):
        files.write("files/v/other.yml", ONE.replace("V One", "V Other").replace("v-1", "v-2"))
        files.write("files/v/two.yml", ONE.replace("V One", "V Two") + f"settings_from: {wrong}\n")
        (problem,) = files.table().check()
        assert (
            f"two.yml: settings_from {wrong!r} is no product of the evidence class 'v-1'{hint and '; ' + hint}"
            in problem
        )


def test_a_file_of_facts_for_a_device_that_nobody_describes_gives_the_nearest(files):
    path = files.write("user/v/onw.yml", "facts: {multiprocessors: {value: 4, source: S}}")
    with pytest.raises(FileError) as caught:
        files.table()["v/onw"]
    assert str(caught.value).startswith(f"{path}:1: arch and runtime and evidence_class are missing")
    assert str(caught.value).endswith("name this one after it; did you mean 'v/one'?")


def test_files_and_architectures_are_known_without_reading_any(files):
    overlay = files.write("user/v/one.yml", "facts: [")
    table = files.table()
    assert table.files("v/one") == (files.root / "files/v/one.yml", overlay)
    assert table.files("v/none") == ()
    assert table.architectures == ("v/arch/v_1",)
    assert (table.architecture("v_1"), table.architecture("v_2")) == ("v/arch/v_1", None)


def test_suggestions_say_what_to_install_and_what_is_planned(files):
    files.write(
        "files/suggestions.yml",
        """
        matrix_unit.m8n8k4: nbx-v
        target.v_1a: nbx-v
        async_copy.tma: nbx-absent
        target.v_1: {distribution: nbx-later, planned: true}
        runtime.cuda: nbx-cuda
        """,
    )
    table = files.table()
    assert table.suggestions["matrix_unit.m8n8k4"] == Suggestion("nbx-v")
    assert hints(table.suggestions, table["v/one"], {"nbx-other"}) == (
        "install nbx-v: it has kernels for matrix_unit.m8n8k4, target.v_1a of v/one",
        "nbx-later, which is to bring kernels for target.v_1 of v/one, is planned: there is nothing to install yet",
    )
    assert hints(table.suggestions, table["v/one"], {"nbx-v", "nbx-later"}) == ()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("[a]", r"suggestions.yml:1: 'matrix_unit.m8n8k4' is a list; write the name of a distribution"),
        ("3", "is an integer"),
        ("{distributions: a}", "unknown key 'distributions' of 'matrix_unit.m8n8k4'; did you mean 'distribution'"),
        ("{planned: true}", "write {distribution: <name>, planned: true}"),
        ("{distribution: a, planned: soon}", "write {distribution: <name>, planned: true}"),
    ],
)
def test_a_malformed_suggestion_is_refused(files, row, message):
    files.write("files/suggestions.yml", f"matrix_unit.m8n8k4: {row}")
    table = files.table()
    assert dict(table.suggestions) == {}
    (problem,) = table.check()
    assert re.search(message, problem)


def test_two_folders_may_not_suggest_for_one_capability(files, tmp_path):
    files.write("files/suggestions.yml", "target.v_1: nbx-v\ntarget.v_1a: nbx-v")
    files.write("user/suggestions.yml", "target.v_1: nbx-w")
    table = files.table()
    (problem,) = table.check()
    assert problem.endswith("user/suggestions.yml:1: 'target.v_1' has a suggestion already; leave one out")
    assert dict(table.suggestions) == {"target.v_1a": Suggestion("nbx-v")}


# Live devices.


def test_a_live_device_is_recognised_by_runtime_name_arch_and_count(files):
    table = files.table()
    assert table.match(live(multiprocessors=4)) is table["v/one"]
    for other in (
        live("V Two", multiprocessors=4),
        live(arch="v_2", multiprocessors=4),
        live(runtime="hip", multiprocessors=4),
        live(multiprocessors=3),
        live(),
    ):
        assert table.match(other) is None


def test_an_empty_rule_takes_every_device_of_the_runtime_and_no_rule_none(files):
    files.write("files/host/cpu.yml", "arch: host\nruntime: host\nevidence_class: host\nmatch: {}")
    files.write("files/host/other.yml", "arch: host\nruntime: host\nevidence_class: host")
    assert files.table().match(live("any", "x86_64", "host")).id == "host/cpu"


def test_two_files_that_match_one_card_are_named(files):
    files.write("user/v/mine.yml", ONE)
    with pytest.raises(DuplicateError, match=r"'V One' \(v_1\) is matched by .*mine.yml and by .*one.yml"):
        files.table().match(live(multiprocessors=4))


def test_an_unreadable_file_matters_only_where_nothing_else_matches(files):
    files.write("files/v/broken.yml", "arch: [")
    table = files.table()
    assert table.match(live(multiprocessors=4)) is table["v/one"]
    with pytest.raises(FileError, match=r"no device file matches 'V Two' .* 1 could not be read: .*broken.yml"):
        table.match(live("V Two"))


@pytest.mark.parametrize(
    "rule",
    [
        "{names: [V One], archs: [v_1]}",
        '{names: ["V \\u004fne"]}',
        '{names: ["V \\x4Fne"], multiprocessors: 4}',
        "{names: [Other,\n  V One]}",
        "{names: [Other, # }\n  V One]}",
        "{archs: [v_1]}",
        "\n  names: [V One]",
        "{}",
    ],
)
def test_however_a_rule_is_written_the_card_is_recognised(files, rule):
    files.write("files/v/one.yml", f"extends: v/arch/v_1\nevidence_class: v-1\nmatch: {rule}\n")
    assert files.table().match(live(multiprocessors=4)).id == "v/one"


def test_names_with_quotes_are_recognised(files):
    for text in ("'It''s \"One\"'", '"It\'s \\"One\\""'):
        files.write("files/v/one.yml", f"extends: v/arch/v_1\nevidence_class: v-1\nmatch: {{names: [{text}]}}\n")
        assert files.table().match(live('It\'s "One"')).id == "v/one"
