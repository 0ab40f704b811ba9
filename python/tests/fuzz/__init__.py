"""Random calls of all functions of saccade, for python/tests/fuzz_arguments.py."""

from . import attention, caches, modules, pages, pictures

CASES = (
    *(attention.attention,) * 6,
    *(attention.attention_varlen,) * 2,
    *(attention.attention_backward,) * 3,
    attention.attention_flops,
    attention.merge_states,
    *(attention.scaled_dot_product_attention,) * 2,
    *(attention.inspect,) * 2,
    *(caches.rope,) * 2,
    *(caches.kv_cache,) * 2,
    *(modules.module,) * 3,
    pages.page,
    pictures.picture,
    pictures.settings,
)
