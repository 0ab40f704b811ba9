"""Writes saccade-VERSION.dist-info of the sources in argv[1] to the current folder: what `pip list` reads."""

import os
import sys

from scikit_build_core.build import prepare_metadata_for_build_wheel

target = os.getcwd()
os.chdir(sys.argv[1])
folder = prepare_metadata_for_build_wheel(target)
for name in ("WHEEL", "RECORD"):
    path = os.path.join(target, folder, name)
    if os.path.exists(path):
        os.remove(path)
with open(os.path.join(target, folder, "INSTALLER"), "w") as file:
    file.write("dpkg\n")
