"""Finds the models and problems of the operator Attention, which the tests of saccade.onnx use too."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[3] / "python" / "tests"))
