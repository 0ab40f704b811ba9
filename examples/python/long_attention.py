"""Looks at attention over 100,000 tokens, whose matrix of 40 GB a head would fit nowhere.

    python examples/python/long_attention.py [TOKENS]

The tokens are made up: topics follow one another, some of them return, and each token's query resembles the keys of its
own topic. One call finds, at the speed of attention itself, where each head looks: a map of the whole matrix, the
attention that each key receives, and the entropy of each row. Writes long_attention.svg and .html.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import saccade

HEADS, HEAD_DIM, TOPIC_TOKENS, TOPICS = 2, 64, 4_000, 12


def made_up_tokens(count: int) -> tuple[np.ndarray, np.ndarray]:
    """q and k, [heads, count, head_dim]; the first head knows topics, the second one positions too."""
    rng = np.random.default_rng(0)
    topics = rng.integers(TOPICS, size=-(-count // TOPIC_TOKENS)).repeat(TOPIC_TOKENS)[:count]
    meaning = rng.standard_normal((TOPICS, HEAD_DIM))[topics]
    k = meaning + 0.5 * rng.standard_normal((HEADS, count, HEAD_DIM))
    q = 0.6 * meaning + 0.5 * rng.standard_normal((HEADS, count, HEAD_DIM))
    return q.astype(np.float32), k.astype(np.float32)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    q, k = made_up_tokens(count)
    slopes = np.float32([0.0, 0.002])  # the second head prefers what is near
    begin = time.perf_counter()
    found = saccade.inspect(
        q, k, causal="top_left", alibi_slopes=slopes, entropy=True, received=True, distance=True, pool=(400, 400)
    )
    print(f"{count:,} tokens, {HEADS} heads: {time.perf_counter() - begin:.1f} s")
    for head in range(HEADS):
        strongest = ", ".join(map(str, np.argsort(-found.received[head])[:3]))
        print(
            f"head {head}: a row spreads over exp(entropy) = {np.exp(found.entropy[head].mean()):,.0f} keys and looks "
            f"{found.mean_distance[head]:,.0f} positions back; most is received by keys {strongest}"
        )
    picture = saccade.heatmap(
        found.pooled,
        queries=count,
        keys=count,
        title=f"Attention of {count:,} tokens to {count:,} tokens",
        panel_titles=["by topic", "by topic, near ones first"],
    )
    picture.save("long_attention.svg")
    picture.save("long_attention.html")
    print("pictures: long_attention.svg long_attention.html")


if __name__ == "__main__":
    main()
