#!/usr/bin/env python3
"""Makes tests/data/model_input_goldens.safetensors: sound and images as `transformers` and Pillow prepare them.

pip install numpy torch transformers pillow safetensors
tests/goldens/make_model_input_goldens.py
"""

import pathlib

import numpy as np
from PIL import Image
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor

TARGET = pathlib.Path(__file__).resolve().parent.parent / "data" / "model_input_goldens.safetensors"


def sound(generator, count):
    """A tone that rises, a low one, and noise."""
    seconds = np.arange(count) / 16000
    tones = 0.4 * np.sin(2 * np.pi * (300 + 2000 * seconds) * seconds) + 0.1 * np.sin(2 * np.pi * 90 * seconds)
    return (tones + 0.01 * generator.standard_normal(count)).astype(np.float32)


def pixels(image, size):
    """Pillow's resizing of each channel in f32, which does not round to whole numbers."""
    channels = [Image.fromarray(image[..., c].astype(np.float32)) for c in range(3)]
    resized = np.stack([np.asarray(channel.resize((size, size), Image.Resampling.BILINEAR)) for channel in channels])
    mean, deviation = np.array([0.5, 0.4, 0.3]), np.array([0.2, 0.3, 0.5])
    return ((resized / 255 - mean[:, None, None]) / deviation[:, None, None])[None].astype(np.float32)


def main():
    generator = np.random.default_rng(1)
    samples = sound(generator, 7000)
    tensors = {"samples": samples}
    for bins in (80, 128):
        # chunk_length: a second, so 100 frames.
        extractor = WhisperFeatureExtractor(feature_size=bins, chunk_length=1)
        tensors[f"log_mel.{bins}"] = extractor(samples, sampling_rate=16000)["input_features"][0]
    # Longer than the frames: cut.
    extractor = WhisperFeatureExtractor(feature_size=80, chunk_length=1)
    tensors["long_samples"] = sound(generator, 16500)
    tensors["long_log_mel"] = extractor(tensors["long_samples"], sampling_rate=16000)["input_features"][0]
    image = generator.integers(0, 256, (19, 31, 3), dtype=np.uint8)
    tensors["image"] = image
    for size in (12, 40):
        tensors[f"pixels.{size}"] = pixels(image, size)
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, TARGET)


if __name__ == "__main__":
    main()
