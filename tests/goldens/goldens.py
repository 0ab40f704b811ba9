"""Functions shared by the scripts that write the goldens of tests/data/."""
import json

import numpy as np
import torch


def write_safetensors(path, tensors, metadata):
    names = {torch.float32: "F32", torch.float64: "F64", torch.bool: "BOOL", torch.int64: "I64"}
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        begin = len(data)
        data += np.ascontiguousarray(tensor.numpy()).tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
