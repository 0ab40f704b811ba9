"""Builds a program that uses every library of the package, and runs it."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class TestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "PkgConfigDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # it would lie beside this file
        toolchain.generate()

    def build(self):
        options = self.dependencies["saccade"].options
        parts = [part for part in ("gpt", "io", "model", "tokenizer") if options.get_safe(part)]
        cmake = CMake(self)
        cmake.configure(variables={"PARTS": ";".join(parts)})
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(os.path.join(self.cpp.build.bindir, "use_saccade"), env="conanrun")
