#include "saccade/kv_cache.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "array.h"
#include "bind.h"
#include "options.h"
#include "saccade/rope.h"
#ifdef SACCADE_HAS_IO
#include "saccade/kv_cache_file.h"
#endif

namespace saccade::python {
namespace {

/// A cache that Python threads may share: calls that change it wait for the others. The lock is taken without the
/// GIL, so that no thread waits for one of them while it holds the other. A score_mod runs while its own call
/// reads the cache: it may read the cache too, but would deadlock if it changed it.
class SharedKvCache {
 public:
  explicit SharedKvCache(KvCache cache) : cache_(std::move(cache)) {}

  /// Throws std::runtime_error in a score_mod of a call that reads the cache.
  template <class Call>
  auto change(Call call) {
    if (PythonScoreModifier::is_called_under_lock_of(this))
      throw std::runtime_error("[KvCache] a score_mod cannot change the cache that its own call reads");
    const nb::gil_scoped_release unlocked;
    const std::unique_lock lock(mutex_);
    return call(cache_);
  }
  template <class Call>
  auto read(Call call) const {
    const nb::gil_scoped_release unlocked;
    std::shared_lock lock(mutex_, std::defer_lock);
    if (!PythonScoreModifier::is_called_under_lock_of(this)) lock.lock();
    return call(cache_);
  }

 private:
  mutable std::shared_mutex mutex_;
  KvCache cache_;
};

DType dtype_named(nb::handle name) { return dtype_from_name(text_of(name)); }

void append(SharedKvCache& cache, nb::handle k, nb::handle v, nb::handle sequence, nb::handle layout) {
  const Array k_array(k, "k"), v_array(v, "v");
  const Layout order = layout_named(layout);
  std::optional<std::int64_t> one;
  if (!sequence.is_none()) one = integer(sequence, "sequence");
  cache.change([&](KvCache& to) {
    if (one)
      to.append(*one, k_array.view(), v_array.view(), order);
    else
      to.append(k_array.view(), v_array.view(), order);
  });
}

using CacheAttention = void (*)(const TensorView&, const KvCache&, const MutableTensorView&,
                                const AttentionOptions&);

template <CacheAttention function>
void attend(const SharedKvCache& cache, nb::handle q, nb::handle out, nb::handle lse, nb::handle weights,
            const nb::dict& given) {
  Array q_array(q, "q");
  q_array.make_rows_contiguous();
  Options options(given);
  Result o(out, "out"), lse_result(lse, "lse"), weights_result(weights, "weights");
  options.require_apart(o, {{"q", &q_array}});
  options.set_locked(&cache);
  options.value.lse = lse_result.view();
  options.value.weights = weights_result.view();
  cache.read([&](const KvCache& from) { function(q_array.view(), from, o.view(), options.value); });
  o.finish();
  options.finish();
  options.rethrow();
}

RopePairs pairs_named(nb::handle object) {
  const std::string name = text_of(object);
  if (name == "half") return RopePairs::half;
  if (name == "interleaved") return RopePairs::interleaved;
  refuse("pairs", "expected 'half' or 'interleaved', got '" + name + "'");
}

/// Whether two views are equal: memory, type, shape and strides.
bool are_one(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && std::ranges::equal(a.dims(), b.dims()) &&
         std::equal(a.strides.begin(), a.strides.begin() + a.rank, b.strides.begin());
}

void rotate(const Rope& rope, nb::handle x, nb::handle y, nb::handle positions, nb::handle start,
            nb::handle layout) {
  const Array from(x, "x"), to = Array::writable(y, "out"), given = Array::optional(positions, "positions");
  const std::int64_t first = integer(start, "start");
  const Layout order = layout_named(layout);
  if (overlap(from.view(), to.view()) && !are_one(from.view(), to.view()))
    refuse("out", "shares memory with x, but is not x itself");
  const nb::gil_scoped_release unlocked;
  if (given.view())
    rope.rotate(from.view(), to.mutable_view(), given.view(), order);
  else
    rope.rotate(from.view(), to.mutable_view(), first, order);
}

}  // namespace

void bind_kv_cache(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Rope>(module, "Rope")
      .def(
          "__init__",
          [](Rope* self, nb::handle dim, nb::handle base, nb::handle scaling_factor, nb::handle rotary_dim,
             nb::handle pairs, nb::handle frequencies) {
            RopeOptions options{.base = number(base, "base"),
                                .scaling_factor = number(scaling_factor, "scaling_factor"),
                                .rotary_dim = integer(rotary_dim, "rotary_dim"),
                                .pairs = pairs_named(pairs)};
            if (!frequencies.is_none()) {
              const Tensor numbers = Tensor::copy_of(Array(frequencies, "frequencies").view(), DType::f64);
              options.frequencies.assign(numbers.values<double>().begin(), numbers.values<double>().end());
            }
            new (self) Rope(integer(dim, "dim"), options);
          },
          "dim"_a.none(), "base"_a.none(), "scaling_factor"_a.none(), "rotary_dim"_a.none(), "pairs"_a.none(),
          "frequencies"_a.none())
      .def("rotate", &rotate, "x"_a.none(), "out"_a, "positions"_a.none(), "start"_a.none(), "layout"_a.none());

  nb::class_<SharedKvCache> bound(module, "KvCache");
  bound
      .def(
          "__init__",
          [](SharedKvCache* self, nb::handle batch, nb::handle num_kv_heads, nb::handle head_dim,
             nb::handle head_dim_v, nb::handle dtype, nb::handle dtype_v, nb::handle rotate, nb::handle page_size,
             nb::handle window, nb::handle causal, const Rope* rope, nb::handle capacity) {
            KvCacheOptions options{.batch = integer(batch, "batch"),
                                   .num_kv_heads = integer(num_kv_heads, "num_kv_heads"),
                                   .head_dim = integer(head_dim, "head_dim"),
                                   .head_dim_v = integer(head_dim_v, "head_dim_v"),
                                   .dtype = dtype_named(dtype),
                                   .page_size = integer(page_size, "page_size"),
                                   .window = integer(window, "window"),
                                   .causal = boolean(causal, "causal"),
                                   .capacity = integer(capacity, "capacity")};
            if (!dtype_v.is_none()) options.dtype_v = dtype_named(dtype_v);
            if (!rotate.is_none()) options.rotate = boolean(rotate, "rotate");
            if (rope) options.rope = *rope;
            new (self) SharedKvCache(KvCache(options));
          },
          "batch"_a.none(), "num_kv_heads"_a.none(), "head_dim"_a.none(), "head_dim_v"_a.none(), "dtype"_a.none(),
          "dtype_v"_a.none(), "rotate"_a.none(), "page_size"_a.none(), "window"_a.none(), "causal"_a.none(),
          "rope"_a.none(), "capacity"_a.none())
      .def("append", &append, "k"_a.none(), "v"_a.none(), "sequence"_a.none(), "layout"_a.none())
      .def("attention", &attend<&attention>, "q"_a.none(), "out"_a, "lse"_a.none(), "weights"_a.none(),
           "options"_a)
      .def("decode", &attend<&decode>, "q"_a.none(), "out"_a, "lse"_a.none(), "weights"_a.none(), "options"_a)
      .def("lengths",
           [](const SharedKvCache& cache) {
             return cache.read([](const KvCache& from) {
               return std::vector<std::int64_t>(from.lengths().begin(), from.lengths().end());
             });
           })
      .def(
          "first_kept",
          [](const SharedKvCache& cache, nb::handle sequence) {
            const std::int64_t which = integer(sequence, "sequence");
            return cache.read([&](const KvCache& from) { return from.first_kept(which); });
          },
          "sequence"_a.none())
      .def(
          "set_start",
          [](SharedKvCache& cache, nb::handle sequence, nb::handle start) {
            const std::int64_t which = integer(sequence, "sequence"), first = integer(start, "start");
            cache.change([&](KvCache& of) { of.set_start(which, first); });
          },
          "sequence"_a.none(), "start"_a.none())
      .def("starts",
           [](const SharedKvCache& cache) {
             return cache.read([](const KvCache& from) {
               std::vector<std::int64_t> starts;
               for (std::int64_t b = 0; b < from.config().batch; ++b) starts.push_back(from.start(b));
               return starts;
             });
           })
      .def(
          "positions",
          [](const SharedKvCache& cache, nb::handle count) {
            const std::int64_t tokens = integer(count, "count");
            return numpy_array(cache.read([&](const KvCache& from) { return from.positions(tokens); }));
          },
          "count"_a.none())
      .def(
          "truncate",
          [](SharedKvCache& cache, nb::handle sequence, nb::handle length) {
            const std::int64_t which = integer(sequence, "sequence"), tokens = integer(length, "length");
            cache.change([&](KvCache& of) { of.truncate(which, tokens); });
          },
          "sequence"_a.none(), "length"_a.none())
      .def(
          "clear",
          [](SharedKvCache& cache, nb::handle sequence) {
            const std::int64_t which = integer(sequence, "sequence");
            cache.change([&](KvCache& of) { of.clear(which); });
          },
          "sequence"_a.none())
      .def(
          "share_prefix",
          [](SharedKvCache& cache, nb::handle from, nb::handle to, nb::handle length) {
            const std::int64_t source = integer(from, "from_sequence"), target = integer(to, "to_sequence"),
                               tokens = integer(length, "length");
            cache.change([&](KvCache& of) { of.share_prefix(source, target, tokens); });
          },
          "from_sequence"_a.none(), "to_sequence"_a.none(), "length"_a.none())
      .def("dequantize_k",
           [](const SharedKvCache& cache) {
             return numpy_array(cache.read([](const KvCache& from) { return from.dequantize_k(); }));
           })
      .def("dequantize_v",
           [](const SharedKvCache& cache) {
             return numpy_array(cache.read([](const KvCache& from) { return from.dequantize_v(); }));
           })
      .def("head_dim_v",
           [](const SharedKvCache& cache) {
             return cache.read([](const KvCache& from) { return from.config().head_dim_v; });
           })
      .def("nbytes",
           [](const SharedKvCache& cache) { return cache.read([](const KvCache& of) { return of.bytes(); }); })
      .def("pages_in_use", [](const SharedKvCache& cache) {
        return cache.read([](const KvCache& of) { return of.pages_in_use(); });
      });
#ifdef SACCADE_HAS_IO
  bound
      .def(
          "save",
          [](const SharedKvCache& self, const nb::bytes& path) {
            const std::string name(path.c_str(), path.size());
            self.read([&](const KvCache& from) { save_kv_cache(name, from); });
          },
          "path"_a)
      .def_static(
          "load",
          [](const nb::bytes& path) {
            const std::string name(path.c_str(), path.size());
            const nb::gil_scoped_release unlocked;
            return new SharedKvCache(load_kv_cache(name));
          },
          "path"_a, nb::rv_policy::take_ownership);
#endif
}

}  // namespace saccade::python
