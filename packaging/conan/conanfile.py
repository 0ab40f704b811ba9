"""The recipe for Conan 2: `conan create packaging/conan` builds the sources around it."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.gnu import PkgConfigDeps

# The library of each option, and what it requires. Pictures in PNG and MPI are left to a build by hand.
JSON = "nlohmann_json/[>=3.11 <4]"
PARTS = {
    "gpt": [],
    "io": ["zlib/[>=1.2.11 <2]", JSON],
    "model": [],
    "tokenizer": ["oniguruma/[>=6.9 <7]", "utf8proc/[>=2.8 <3]", JSON],
}


class SaccadeConan(ConanFile):
    name = "saccade"
    description = "Exact attention on the CPU: fast, in linear memory, with gradients"
    license = "Apache-2.0"
    topics = ("attention", "transformer", "machine-learning")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], **{part: [True, False] for part in PARTS}}
    default_options = {"shared": False, **dict.fromkeys(PARTS, False)}

    def set_version(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        text = load(self, os.path.join(root, "CMakeLists.txt"))
        number = re.search(r"project\(saccade VERSION ([0-9.]+)", text)[1]
        self.version = number + re.search(r'set\(SACCADE_VERSION_SUFFIX "([^"]*)"\)', text)[1]

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "web/prebuilt/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.options.model and not self.options.io:
            raise ConanInvalidConfiguration("the option model needs io: -o 'saccade/*:io=True'")

    def requirements(self):
        needed = [reference for part in PARTS if self.options.get_safe(part) for reference in PARTS[part]]
        for reference in dict.fromkeys(needed):  # saccadeConfig.cmake looks for them, if saccade is shared too
            self.requires(reference, transitive_libs=True)

    def build_requirements(self):
        if self.options.tokenizer and not self.conf.get("tools.gnu:pkg_config", check_type=str):
            self.tool_requires("pkgconf/[>=2.2 <3]")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in ("CLI", "TESTS", "HEATMAP"):
            toolchain.cache_variables[f"SACCADE_BUILD_{name}"] = False
        for name in ("gpt", "io", "model"):
            toolchain.cache_variables[f"SACCADE_BUILD_{name.upper()}"] = bool(self.options.get_safe(name))
        toolchain.cache_variables["SACCADE_TOKENIZER"] = "ON" if self.options.tokenizer else "OFF"
        toolchain.cache_variables["SACCADE_MPI"] = "OFF"
        toolchain.cache_variables["SACCADE_EMULATE_AMX"] = "OFF"
        toolchain.generate()
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()  # saccade::tokenizer finds its libraries by pkg-config

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        """saccade's own CMake package is used: it knows its libraries and what they need."""
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "saccade"))
