"""What a live device says is said in the words of device files."""

import sys
from pathlib import Path

import pytest
import yaml

import nbx_devices
from nbx_cuda.runtime import devices


def test_every_detected_fact_is_a_key_of_device_files():
    keys = yaml.safe_load((Path(nbx_devices.__file__).parent / "schema.yml").read_text("utf-8"))["keys"]
    assert set(devices._FACTS) <= set(keys)
    assert "memory.bytes" in keys


@pytest.mark.skipif(sys.platform == "darwin", reason="there is no cuda-bindings for macOS")
def test_every_attribute_is_one_of_the_drivers():
    from cuda.bindings import driver

    for name in (*devices._FACTS.values(), "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"):
        assert hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
