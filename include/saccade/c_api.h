/* The C interface: attention, its gradients, decoding with caches, and inspection, for programs in C and in
 * languages that call C.
 *
 *     saccade_options* options = NULL;
 *     saccade_options_create(SACCADE_ATTENTION_OPTIONS, &options);
 *     saccade_options_set_text(options, "causal", "bottom_right");
 *     if (saccade_attention(&q, &k, &v, &o, options) != SACCADE_OK) puts(saccade_last_error());
 *     saccade_options_destroy(options);
 *
 * C99. Every function that can fail returns a status; saccade_last_error() then says what was expected and what
 * was given. No function throws, prints or ends the program. After a failure the outputs of a function are
 * undefined, except for handles, which are unchanged. A handle is used by one thread at a time; several threads
 * may share it in calls that take it as const, unless its options name results to write. saccade_*_destroy() takes
 * NULL too. docs/versioning.md says what later versions keep. */
#ifndef SACCADE_C_API_H
#define SACCADE_C_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SACCADE_C_API __attribute__((visibility("default")))
#else
#define SACCADE_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------------------------- */

typedef int32_t saccade_status;
enum {
  SACCADE_OK = 0,
  SACCADE_INVALID_ARGUMENT = 1, /* a shape, type, name or value that does not fit */
  SACCADE_OUT_OF_MEMORY = 2,
  SACCADE_FAILED = 3,     /* anything else */
  SACCADE_INTERRUPTED = 4 /* the progress hook asked for it */
};

/* The error message of this thread's last failed call, in English; "" before the first. UTF-8 if the names that
 * the caller gave are. Valid until the thread's next failed call. */
SACCADE_C_API const char* saccade_last_error(void);

/* The library's version, for example "0.2.0", or "0.2.0-dev" before its release. */
SACCADE_C_API const char* saccade_version(void);

/* ---- Tensors ------------------------------------------------------------------------------------------------ */

typedef int32_t saccade_dtype;
enum {
  SACCADE_F32 = 0,
  SACCADE_F64 = 1,
  SACCADE_F16 = 2,  /* IEEE 754 binary16 */
  SACCADE_BF16 = 3, /* the upper half of binary32 */
  SACCADE_BOOL = 4, /* a byte, 0 or 1 */
  SACCADE_I8 = 5,
  SACCADE_I16 = 6,
  SACCADE_I32 = 7,
  SACCADE_I64 = 8,
  SACCADE_U8 = 9,
  SACCADE_U16 = 10,
  SACCADE_U32 = 11,
  SACCADE_U64 = 12,
  SACCADE_F8E4M3 = 13 /* e4m3 of the OCP 8-bit formats; quantized keys and values only, as SACCADE_I8 */
};

enum { SACCADE_MAX_RANK = 6 };

/* A view of memory that it does not own. shape: the length of each of `rank` dimensions, outermost first. strides:
 * steps from one index to the next, in elements, may be 0 or negative; NULL: contiguous, in C order. Functions
 * read both lists during the call only. Results are written through `data`. */
typedef struct saccade_tensor {
  void* data;
  saccade_dtype dtype;
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides;
} saccade_tensor;

/* The same view of a DLTensor of DLPack 0.x or 1.x, whose shape and strides it shares. Refuses devices other than
 * the CPU, vectors of several lanes, and element types that are not listed above. */
SACCADE_C_API saccade_status saccade_tensor_from_dlpack(const void* dl_tensor, saccade_tensor* tensor);

/* ---- Options ------------------------------------------------------------------------------------------------ */

/* Options are set by name and value, so that new options need no new functions. */
typedef struct saccade_options saccade_options;

typedef int32_t saccade_options_kind;
enum {
  /* Of attention, decoding and gradients: the members of AttentionOptions in saccade/attention.h, by their names.
   * Numbers: scale, softcap, query_offset, window_left, window_right, block_mask_q, block_mask_k, dropout_p,
   * dropout_seed (the bits of a 64-bit number), dropout_offset, weights_after_dropout, k_rotated, v_rotated (0 or
   * 1), num_threads, origin_batch, origin_head, origin_num_heads, origin_row, origin_key. Texts: causal ("none",
   * "top_left", "bottom_right"), layout ("bhsd", "bshd"), score_stage ("raw", "softcapped", "biased",
   * "probabilities"). Tensors: query_offsets, mask, block_mask, block_table, cu_seqlens_q, cu_seqlens_k,
   * kv_lengths, kv_starts, k_scale, v_scale, k_multipliers, v_multipliers, alibi_slopes, sinks, and as results
   * lse, weights, scores. Of gradients also dlse, and as results dmask, dsinks, dalibi_slopes. */
  SACCADE_ATTENTION_OPTIONS = 0,
  /* Of a cache: the members of KvCacheOptions in saccade/kv_cache.h. Numbers: batch, num_kv_heads, head_dim (must
   * be set), head_dim_v, page_size, window, causal (0 or 1), capacity, rotate (0 or 1). Texts: dtype and dtype_v
   * ("f32", "bf16", "f16", "f64", "i8", "i4", "f8e4m3"). */
  SACCADE_KV_CACHE_OPTIONS = 1,
  /* Of inspection: the members of InspectOptions in saccade/inspect.h. Numbers: top_k, entropy, max_weight,
   * received, distance (0 or 1), pool_rows, pool_keys. Texts: pooling ("mean", "max"), index_dtype ("i32", "i64").
   * Tensors: rows (i64 [count]), lse. */
  SACCADE_INSPECT_OPTIONS = 2,
  /* Of a rotary embedding: the members of RopeOptions in saccade/rope.h. Numbers: base, scaling_factor,
   * rotary_dim. Text: pairs ("half", "interleaved"). Tensor: frequencies (f64 [rotary_dim / 2]). */
  SACCADE_ROPE_OPTIONS = 3
};

/* Options with their defaults. */
SACCADE_C_API saccade_status saccade_options_create(saccade_options_kind kind, saccade_options** options);
SACCADE_C_API void saccade_options_destroy(saccade_options* options);
/* Sets one option. Refuses names that this kind does not have, and values of another type; the calls that use the
 * option check whether its number or shape is valid. An integer may be given for a floating-point option. */
SACCADE_C_API saccade_status saccade_options_set_i64(saccade_options* options, const char* name, int64_t value);
SACCADE_C_API saccade_status saccade_options_set_f64(saccade_options* options, const char* name, double value);
SACCADE_C_API saccade_status saccade_options_set_text(saccade_options* options, const char* name,
                                                      const char* value);
/* Copies the shape and the strides and keeps the pointer: the data must stay valid as long as calls use the
 * options. For rows and frequencies the data is copied too. */
SACCADE_C_API saccade_status saccade_options_set_tensor(saccade_options* options, const char* name,
                                                        const saccade_tensor* value);
/* Restores the option's default; for a tensor: not given. */
SACCADE_C_API saccade_status saccade_options_unset(saccade_options* options, const char* name);

/* A rectangle of scores of one head: see ScoreBlock and ScoreTile in saccade/attention.h. scores: float, or double
 * where q is f64, as dtype says; key j of row i is at scores[i * stride + j]. None in a call of a block effect.
 * Later versions may append members. */
typedef struct saccade_score_tile {
  int64_t batch, head;
  int64_t first_row, first_key;
  int64_t rows, keys;
  int64_t offset;
  void* scores;
  int64_t stride;
  saccade_dtype dtype;
} saccade_score_tile;

/* Changes scores in place, before masks and biases; -inf hides a key. Called by several threads at once. */
typedef void (*saccade_score_modifier)(void* context, const saccade_score_tile* tile);
/* Turns the gradients of changed scores into those of the scores, in place. */
typedef void (*saccade_score_modifier_backward)(void* context, const saccade_score_tile* scores,
                                                const saccade_score_tile* gradients);
/* Says what the modifier would do to a block: 0 hides all of it, 1 changes nothing, 2 it must be called. */
typedef int32_t (*saccade_score_block_effect)(void* context, const saccade_score_tile* block);

/* Sets the functions of attention's options; each may be NULL. They are called with `context`. */
SACCADE_C_API saccade_status saccade_options_set_score_modifier(saccade_options* options,
                                                                saccade_score_modifier modifier,
                                                                saccade_score_modifier_backward backward,
                                                                saccade_score_block_effect effect, void* context);

/* ---- Attention ---------------------------------------------------------------------------------------------- */

/* o = softmax(scale q k^T + ...) v: attention() of saccade/attention.h, with its shapes, types and errors. options
 * may be NULL here and below: the defaults. */
SACCADE_C_API saccade_status saccade_attention(const saccade_tensor* q, const saccade_tensor* k,
                                               const saccade_tensor* v, const saccade_tensor* o,
                                               const saccade_options* options);
/* The same for few rows over many keys: decode() of saccade/decode.h. */
SACCADE_C_API saccade_status saccade_decode(const saccade_tensor* q, const saccade_tensor* k,
                                            const saccade_tensor* v, const saccade_tensor* o,
                                            const saccade_options* options);
/* The gradients of a loss, from dout, the gradient with respect to o: attention_backward() of saccade/backward.h.
 * o and lse are results of the forward call with the same options. Either dq, or dk and dv, may be NULL. */
SACCADE_C_API saccade_status saccade_attention_backward(const saccade_tensor* q, const saccade_tensor* k,
                                                        const saccade_tensor* v, const saccade_tensor* o,
                                                        const saccade_tensor* lse, const saccade_tensor* dout,
                                                        const saccade_tensor* dq, const saccade_tensor* dk,
                                                        const saccade_tensor* dv, const saccade_options* options);
/* The number of floating-point operations of that call: attention_operations() of saccade/operations.h. */
SACCADE_C_API saccade_status saccade_attention_operations(const saccade_tensor* q, const saccade_tensor* k,
                                                          const saccade_tensor* v, const saccade_options* options,
                                                          double* operations);
/* The standard slopes of ALiBi for `num_heads` heads, into slopes[num_heads]. */
SACCADE_C_API saccade_status saccade_alibi_slopes(int64_t num_heads, float* slopes);

/* ---- Keys in parts ------------------------------------------------------------------------------------------ */

enum {
  SACCADE_ORIGIN_ALIGNMENT = 4096,  /* parts that begin at multiples of it are bit-identical to one call */
  SACCADE_DECODE_SPLIT_KEYS = 4096, /* the same for decoding */
  SACCADE_DECODE_PIECE_KEYS = SACCADE_DECODE_SPLIT_KEYS /* its name in 0.1 */
};

/* Merges `count` results of the same queries over different keys, o_parts[count] and lse_parts[count], into o and
 * lse: merge_states() of saccade/decode.h. Only the option layout is used. */
SACCADE_C_API saccade_status saccade_merge_states(int64_t count, const saccade_tensor* o_parts,
                                                  const saccade_tensor* lse_parts, const saccade_tensor* o,
                                                  const saccade_tensor* lse, const saccade_options* options);

/* The softmax of every row of q over the keys so far: AttentionState of saccade/attention_state.h. */
typedef struct saccade_attention_state saccade_attention_state;

/* output: the element type of the o that finish() will write; -1: q's. */
SACCADE_C_API saccade_status saccade_attention_state_create(saccade_dtype output, saccade_attention_state** state);
SACCADE_C_API void saccade_attention_state_destroy(saccade_attention_state* state);
/* Adds keys; the option origin_key is the index of the first one among all keys. After SACCADE_INTERRUPTED or
 * SACCADE_OUT_OF_MEMORY the state can only be destroyed. */
SACCADE_C_API saccade_status saccade_attention_state_add(saccade_attention_state* state, const saccade_tensor* q,
                                                         const saccade_tensor* k, const saccade_tensor* v,
                                                         const saccade_options* options);
/* Writes o and, where the options name it, lse, over all keys so far. More may be added afterwards. */
SACCADE_C_API saccade_status saccade_attention_state_finish(saccade_attention_state* state,
                                                            const saccade_tensor* o,
                                                            const saccade_options* options);

/* decode() in two steps: decode_states() and merge_decode_states() of saccade/decode.h. states: contiguous,
 * [ceil(seqlen_k / SACCADE_DECODE_SPLIT_KEYS), batch, num_heads, seqlen_q, head_dim_v + 3], with axes of 1 where q
 * has none; f64 where q is f64, else f32. */
SACCADE_C_API saccade_status saccade_decode_states(const saccade_tensor* q, const saccade_tensor* k,
                                                   const saccade_tensor* v, const saccade_tensor* states,
                                                   const saccade_options* options);
SACCADE_C_API saccade_status saccade_merge_decode_states(const saccade_tensor* q, const saccade_tensor* k,
                                                         const saccade_tensor* v, const saccade_tensor* states,
                                                         const saccade_tensor* o, const saccade_options* options);

/* ---- Rotary embeddings -------------------------------------------------------------------------------------- */

typedef struct saccade_rope saccade_rope;

/* For vectors of `dim` numbers, at most 2^20: Rope of saccade/rope.h. */
SACCADE_C_API saccade_status saccade_rope_create(int64_t dim, const saccade_options* options, saccade_rope** rope);
SACCADE_C_API void saccade_rope_destroy(saccade_rope* rope);
/* Writes x, rotated, to y, which may be x. positions: i32 or i64, [seqlen] or [batch, seqlen]; NULL: token i has
 * position start + i. layout: "bhsd" or "bshd"; NULL: "bhsd". */
SACCADE_C_API saccade_status saccade_rope_rotate(const saccade_rope* rope, const saccade_tensor* x,
                                                 const saccade_tensor* y, const saccade_tensor* positions,
                                                 int64_t start, const char* layout);

/* ---- Caches ------------------------------------------------------------------------------------------------- */

/* The keys and values of all tokens so far: KvCache of saccade/kv_cache.h. */
typedef struct saccade_kv_cache saccade_kv_cache;

/* rope: rotates keys when they are appended; NULL: no rotation. It may be destroyed afterwards. */
SACCADE_C_API saccade_status saccade_kv_cache_create(const saccade_options* options, const saccade_rope* rope,
                                                     saccade_kv_cache** cache);
SACCADE_C_API void saccade_kv_cache_destroy(saccade_kv_cache* cache);
/* Adds tokens to every sequence (sequence -1) or to one. layout as of saccade_rope_rotate(). */
SACCADE_C_API saccade_status saccade_kv_cache_append(saccade_kv_cache* cache, int64_t sequence,
                                                     const saccade_tensor* k, const saccade_tensor* v,
                                                     const char* layout);
/* The number of tokens that a sequence has seen, the first position that is kept, the first that is not padding,
 * the bytes of the cache and its pages in use; NULL: not requested. `sequence` applies to the first three. */
SACCADE_C_API saccade_status saccade_kv_cache_state(const saccade_kv_cache* cache, int64_t sequence,
                                                    int64_t* length, int64_t* first_kept, int64_t* start,
                                                    int64_t* bytes, int64_t* pages_in_use);
/* Hides the keys before `start`: padding on the left. */
SACCADE_C_API saccade_status saccade_kv_cache_set_start(saccade_kv_cache* cache, int64_t sequence, int64_t start);
/* Drops the tokens from `length` on; 0 empties the sequence. */
SACCADE_C_API saccade_status saccade_kv_cache_truncate(saccade_kv_cache* cache, int64_t sequence, int64_t length);
/* Makes sequence `to` a copy of the first `length` tokens of sequence `from`. */
SACCADE_C_API saccade_status saccade_kv_cache_share_prefix(saccade_kv_cache* cache, int64_t from, int64_t to,
                                                           int64_t length);
/* The positions of the last `count` tokens of each sequence, into positions[batch * count]. */
SACCADE_C_API saccade_status saccade_kv_cache_positions(const saccade_kv_cache* cache, int64_t count,
                                                        int64_t* positions);
/* The shapes of the keys and values that attention reads, into four numbers each: [batch, num_kv_heads, longest,
 * head_dim], and head_dim_v. longest: the greatest length - first_kept of a sequence; with pages its length.
 * NULL: not requested. */
SACCADE_C_API saccade_status saccade_kv_cache_shapes(const saccade_kv_cache* cache, int64_t* k_shape,
                                                     int64_t* v_shape);
/* Writes these keys, or values, as f32 to a tensor of this shape with any strides: dequantize_k() and
 * dequantize_v() of a cache of any type. Index j is position first_kept + j, with pages position j; zeros where a
 * sequence has no token. */
SACCADE_C_API saccade_status saccade_kv_cache_dequantize_k(const saccade_kv_cache* cache, const saccade_tensor* k);
SACCADE_C_API saccade_status saccade_kv_cache_dequantize_v(const saccade_kv_cache* cache, const saccade_tensor* v);
/* attention() and decode() of the last tokens of each sequence over the cache, which already holds their keys. */
SACCADE_C_API saccade_status saccade_attention_over_cache(const saccade_tensor* q, const saccade_kv_cache* cache,
                                                          const saccade_tensor* o, const saccade_options* options);
SACCADE_C_API saccade_status saccade_decode_over_cache(const saccade_tensor* q, const saccade_kv_cache* cache,
                                                       const saccade_tensor* o, const saccade_options* options);

/* ---- Caches in files ---------------------------------------------------------------------------------------- */

/* These three functions are in libsaccade_io, which a program links beside libsaccade: saccade::io of CMake,
 * saccade-io of pkg-config. A build without saccade::io lacks them. Paths are as for fopen(). The status is
 * SACCADE_FAILED for a file that cannot be read or written, or that holds no cache. */

/* Writes what a cache holds to a safetensors file: save_kv_cache() of saccade/kv_cache_file.h. If that fails, an
 * old file stays as it was. */
SACCADE_C_API saccade_status saccade_kv_cache_save(const saccade_kv_cache* cache, const char* path);
/* A new cache with the rows, lengths and options of the one that was saved, rope too: load_kv_cache() there. "-"
 * reads standard input. */
SACCADE_C_API saccade_status saccade_kv_cache_load(const char* path, saccade_kv_cache** cache);
/* The same from the `size` bytes of such a file, which may be freed afterwards: parse_kv_cache() there. name: what
 * messages call them; NULL: "kv_cache". */
SACCADE_C_API saccade_status saccade_kv_cache_parse(const void* bytes, size_t size, const char* name,
                                                    saccade_kv_cache** cache);

/* ---- Inspection --------------------------------------------------------------------------------------------- */

/* The results of inspect() in saccade/inspect.h. */
typedef struct saccade_inspection saccade_inspection;

/* wanted: options of kind SACCADE_INSPECT_OPTIONS. */
SACCADE_C_API saccade_status saccade_inspect(const saccade_tensor* q, const saccade_tensor* k,
                                             const saccade_options* wanted, const saccade_options* options,
                                             saccade_inspection** inspection);
/* The same for the last rows of each sequence over a cache, which already holds their keys. */
SACCADE_C_API saccade_status saccade_inspect_over_cache(const saccade_tensor* q, const saccade_kv_cache* cache,
                                                        const saccade_options* wanted,
                                                        const saccade_options* options,
                                                        saccade_inspection** inspection);
SACCADE_C_API void saccade_inspection_destroy(saccade_inspection* inspection);
/* A result by its name: rows, top_keys, top_weights, entropy, max_weight, received, distance, mean_distance,
 * pooled. A view of the inspection's memory, valid until it is destroyed; rank 0: not requested. */
SACCADE_C_API saccade_status saccade_inspection_get(const saccade_inspection* inspection, const char* name,
                                                    saccade_tensor* result);

/* ---- Progress ----------------------------------------------------------------------------------------------- */

/* Called between pieces of work, by the thread that calls saccade. Returns 0 to continue; otherwise the call ends
 * with SACCADE_INTERRUPTED and its outputs are undefined. May not set another hook. */
typedef int32_t (*saccade_progress_hook)(void* context);

/* Sets the hook for this thread's later calls; NULL: none. See ProgressHook in saccade/runtime.h for how often it
 * is called. The thread must end or set NULL before `context` is destroyed. */
SACCADE_C_API saccade_status saccade_set_progress_hook(saccade_progress_hook hook, void* context);

/* ---- Threads and instruction sets --------------------------------------------------------------------------- */

/* What starts the threads of calls: "openmp", "std" or "none", chosen when the library was built. */
SACCADE_C_API const char* saccade_threading_layer(void);
/* Gets and sets the default number of threads of calls; 0: OMP_NUM_THREADS, or one for each processor. Results do
 * not depend on it. */
SACCADE_C_API int32_t saccade_num_threads(void);
SACCADE_C_API saccade_status saccade_set_num_threads(int32_t threads);
/* A host program's loop: calls task(task_context, i) once for each i from 0 to tasks - 1, in any order, on any
 * threads, and returns when all have returned. */
typedef void (*saccade_task)(void* task_context, int32_t task);
typedef void (*saccade_parallel_for)(void* context, int32_t tasks, saccade_task task, void* task_context);
/* Makes later calls, in all threads, run on the threads of a host program; NULL: on the library's own. See
 * set_parallel_for() in saccade/runtime.h. */
SACCADE_C_API saccade_status saccade_set_parallel_for(saccade_parallel_for parallel_for, void* context);
/* The names of the instruction sets that this machine can use, slowest first; the list ends with NULL. */
SACCADE_C_API const char* const* saccade_available_isas(void);
/* The name of the instruction set that calls use, for example "avx2"; NULL, with an error, where the environment
 * variable SACCADE_ISA names one that this machine lacks. */
SACCADE_C_API const char* saccade_active_isa(void);
/* Makes later calls, in all threads, use another one. */
SACCADE_C_API saccade_status saccade_set_active_isa(const char* name);
/* Frees the scratch memory kept between calls. */
SACCADE_C_API void saccade_release_workspaces(void);

#ifdef __cplusplus
}
#endif

#endif
