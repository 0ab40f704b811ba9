"""A stand-in for a library or a tool that the recipe requires: the system's, which script/test_recipes tests with."""

from conan import ConanFile

LIBRARIES = {"zlib": ["z"], "oniguruma": ["onig"], "utf8proc": ["utf8proc"]}
NAMES = {"zlib": "ZLIB", "utf8proc": "libutf8proc"}  # for CMake and pkg-config, where it is another


class System(ConanFile):
    def package_info(self):
        name = NAMES.get(self.name, self.name)
        self.cpp_info.set_property("cmake_file_name", name)
        self.cpp_info.set_property("cmake_target_name", f"{name}::{name}")
        self.cpp_info.set_property("pkg_config_name", name)
        self.cpp_info.system_libs = LIBRARIES.get(self.name, [])
        self.cpp_info.includedirs = self.cpp_info.libdirs = self.cpp_info.bindirs = []
