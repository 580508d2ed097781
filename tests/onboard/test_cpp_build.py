"""The C++ library builds with every compiler, is installed whole, and is found without ONNX Runtime."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.onboard.cpp import SOURCE, build, install, run
from trajpred import __version__

CONSUMER = """
cmake_minimum_required(VERSION 3.16)
project(consumer LANGUAGES CXX)
find_package(trajpred_onboard QUIET ${COMPONENTS})
if(NOT trajpred_onboard_FOUND)
  message(FATAL_ERROR "${trajpred_onboard_NOT_FOUND_MESSAGE}")
endif()
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE trajpred_onboard::trajpred_onboard)
"""
#: What uses the arrays alone; prints lanes and version.
PROGRAM = """
#include <cstdio>
#include <trajpred_onboard/trajpred_onboard.hpp>
int main() {
  const auto lanes = trajpred::onboard::LaneMap().lanes.size();
  std::printf("%zu %d.%d.%d\\n", lanes, TRAJPRED_ONBOARD_VERSION_MAJOR, TRAJPRED_ONBOARD_VERSION_MINOR,
              TRAJPRED_ONBOARD_VERSION_PATCH);
}
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of shared libraries")
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_a_shared_library_of_every_compiler(compiler: str, tmp_path: Path) -> None:
    """Without a warning; ``build`` makes them errors."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    options = ("-DTRAJPRED_ONNX=OFF", "-DBUILD_SHARED_LIBS=ON", f"-DCMAKE_CXX_COMPILER={compiler}")
    prefix = install(build(tmp_path / "build", *options), tmp_path / "installed")
    major, minor, _ = __version__.split(".")
    names = {path.name for path in prefix.glob("lib*/**/libtrajpred_onboard.so*")}
    stem = "libtrajpred_onboard.so"
    assert names == {stem, f"{stem}.{major}.{minor}", f"{stem}.{__version__}"}
    licence = prefix / "share" / "doc" / "trajpred_onboard" / "LICENSE"
    assert licence.read_bytes() == (ROOT / "LICENSE").read_bytes()

    user = tmp_path / "user"
    user.mkdir()
    (user / "CMakeLists.txt").write_text(CONSUMER)
    (user / "main.cpp").write_text(PROGRAM)
    found = (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}")
    made = run("cmake", "-S", user, "-B", user / "build", *found)
    assert made.returncode == 0, made.stderr
    assert run("cmake", "--build", user / "build").returncode == 0
    assert run(user / "build" / "consumer").stdout == f"0 {__version__}\n"
    with_onnx = run("cmake", "-S", user, "-B", user / "other", *found, "-DCOMPONENTS=COMPONENTS;onnx")
    assert with_onnx.returncode != 0
    assert "no component onnx: trajpred_onboard was built with TRAJPRED_ONNX=OFF" in with_onnx.stderr


def test_the_header_has_the_version_of_the_package() -> None:
    header = (SOURCE / "include" / "trajpred_onboard" / "version.hpp").read_text("utf-8")
    assert ".".join(re.findall(r"VERSION_[A-Z]+ (\d+)", header)) == __version__
