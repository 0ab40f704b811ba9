"""A plugin of pytest that runs the tests of the package rxnmapper with attention weights of saccade.

HEAD_WEIGHTS (the program) and RXNMAPPER (the model's folder) are in the environment."""

import os
import subprocess

import torch
from rxnmapper import RXNMapper


def weights_of(mapper, reactions, force_layer=None, force_head=None):
    """The weights of the head that knows which atom became which: [tokens, tokens] of each reaction."""
    (layer,) = mapper.layers if force_layer is None else [force_layer]
    head = mapper.head if force_head is None else force_head
    ids = [mapper.tokenizer.convert_tokens_to_ids(mapper.tokenize_for_model(reaction)) for reaction in reactions]
    most = mapper.model.config.max_position_embeddings
    for tokens in ids:
        if len(tokens) > most:
            raise ValueError(f"Reaction SMILES has {len(tokens)} tokens, should be at most {most}.")
    printed = subprocess.run(
        [os.environ["HEAD_WEIGHTS"], os.environ["RXNMAPPER"], str(layer), str(head)],
        input="".join(" ".join(map(str, tokens)) + "\n" for tokens in ids),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    rows = iter(printed.splitlines())
    return [torch.tensor([[float(x) for x in next(rows).split()] for _ in tokens]) for tokens in ids]


RXNMapper.convert_batch_to_attns = weights_of
