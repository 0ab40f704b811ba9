// linear() and its gradients at the sizes of a transformer's projections, compared with the matrix products of
// OpenBLAS, BLIS and oneDNN where the machine has them.
#include "saccade/linear.h"

#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <omp.h>

#include <functional>
#include <string>
#include <vector>

#include "saccade/limits.h"
#include "saccade/random.h"

namespace saccade {
namespace {

/// A projection with its gradients: weight [d_out, d_in].
struct Projection {
  std::int64_t rows, d_in, d_out;
  Tensor x = TorchGenerator(1).rand({rows, d_in}), weight = TorchGenerator(2).rand({d_out, d_in});
  Tensor dout = TorchGenerator(3).rand({rows, d_out});
  Tensor y{DType::f32, {rows, d_out}}, dx{DType::f32, {rows, d_in}}, dweight{DType::f32, {d_out, d_in}};
};

/// c [m, n] = a b, all row-major; a or b may be transposed.
struct Product {
  bool transposed_a = false, transposed_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  const Tensor* a = nullptr;
  const Tensor* b = nullptr;
  Tensor* c = nullptr;
};

/// The matrix product of another library.
struct Library {
  std::string name;
  std::function<void(int threads)> set_threads;
  std::function<void(const Product&)> multiply;
};

template <class Function>
Function* find(void* library, const char* name) {
  return library ? reinterpret_cast<Function*>(dlsym(library, name)) : nullptr;
}

/// A library with the C interface of BLAS. All such libraries have the same symbols, so they are loaded instead of
/// linked.
template <class Count>
void add_blas(std::vector<Library>& libraries, const char* name, const char* file, const char* set_threads) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  auto* const threads = find<void(Count)>(handle, set_threads);
  auto* const sgemm =
      find<void(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int)>(
          handle, "cblas_sgemm");
  if (!threads || !sgemm) return;
  constexpr int kRowMajor = 101, kAsItIs = 111, kTransposed = 112;
  libraries.push_back(
      {name, [threads](int count) { threads(count); },
       [sgemm](const Product& p) {
         sgemm(kRowMajor, p.transposed_a ? kTransposed : kAsItIs, p.transposed_b ? kTransposed : kAsItIs,
               static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k), 1.0f,
               p.a->values<float>().data(), static_cast<int>(p.a->shape(1)), p.b->values<float>().data(),
               static_cast<int>(p.b->shape(1)), 0.0f, p.c->values<float>().data(), static_cast<int>(p.n));
       }});
}

void add_onednn(std::vector<Library>& libraries) {
  auto* const sgemm = find<int(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*,
                               std::int64_t, const float*, std::int64_t, float, float*, std::int64_t)>(
      dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL), "dnnl_sgemm");
  if (!sgemm) return;
  libraries.push_back({"oneDNN", omp_set_num_threads, [sgemm](const Product& p) {
                         sgemm(p.transposed_a ? 'T' : 'N', p.transposed_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f,
                               p.a->values<float>().data(), p.a->shape(1), p.b->values<float>().data(),
                               p.b->shape(1), 0.0f, p.c->values<float>().data(), p.n);
                       }});
}

/// The peak of one and of two threads. Measured before other libraries are loaded, because their idle threads
/// spin.
double peak_of(int threads) {
  static const double peaks[] = {measure_peak_flops(1), measure_peak_flops(2)};
  return peaks[threads - 1];
}

const std::vector<Library>& libraries() {
  static const std::vector<Library> all = [] {
    peak_of(1);
    std::vector<Library> found;
    add_blas<int>(found, "OpenBLAS", "libopenblas.so.0", "openblas_set_num_threads");
    add_blas<std::int64_t>(found, "BLIS", "libblis.so.4", "bli_thread_set_num_threads");
    add_onednn(found);
    return found;
  }();
  return all;
}

/// Times `call`, which does `flops` operations, and reports them as a share of the peak of the threads.
void time(benchmark::State& state, double flops, int threads, const std::function<void()>& call) {
  call();
  for ([[maybe_unused]] auto iteration : state) {
    call();
    benchmark::ClobberMemory();
  }
  state.counters["of peak"] =
      benchmark::Counter(flops / peak_of(threads), benchmark::Counter::kIsIterationInvariantRate);
}

/// rows x d_in x d_out.
struct Sizes {
  std::int64_t rows, d_in, d_out;
};
constexpr Sizes kSizes[] = {{2048, 128, 128}, {2048, 128, 512}, {2048, 512, 128},  {2048, 256, 256},
                            {4096, 256, 256}, {1024, 768, 768}, {1024, 768, 3072}, {1024, 3072, 768},
                            {4096, 768, 768}, {1, 768, 768},    {16, 768, 768}};

enum class Kind { forward, dx, dweight };

void run_ours(benchmark::State& state, Kind kind, const Sizes& sizes, int threads) {
  Projection p{sizes.rows, sizes.d_in, sizes.d_out};
  const LinearOptions options{.num_threads = threads};
  time(state, 2.0 * static_cast<double>(p.rows * p.d_in * p.d_out), threads, [&] {
    if (kind == Kind::forward) linear(p.x, p.weight, p.y, options);
    if (kind == Kind::dx) linear_backward(p.x, p.weight, p.dout, {.dx = p.dx}, options);
    if (kind == Kind::dweight) linear_backward(p.x, p.weight, p.dout, {.dweight = p.dweight}, options);
  });
}

void run_library(benchmark::State& state, const Library& library, Kind kind, const Sizes& sizes, int threads) {
  Projection p{sizes.rows, sizes.d_in, sizes.d_out};
  Product product{false, true, p.rows, p.d_out, p.d_in, &p.x, &p.weight, &p.y};
  if (kind == Kind::dx) product = {false, false, p.rows, p.d_in, p.d_out, &p.dout, &p.weight, &p.dx};
  if (kind == Kind::dweight) product = {true, false, p.d_out, p.d_in, p.rows, &p.dout, &p.x, &p.dweight};
  library.set_threads(threads);
  time(state, 2.0 * static_cast<double>(p.rows * p.d_in * p.d_out), threads, [&] { library.multiply(product); });
}

/// The smallest projection of the examples, where the overhead of the call dominates.
void tiny(benchmark::State& state) {
  const Tensor x = TorchGenerator(1).rand({6, 3}), weight = TorchGenerator(2).rand({3, 4});
  Tensor y(DType::f32, {6, 4});
  for ([[maybe_unused]] auto iteration : state) {
    linear(x, weight, y, {.weight_layout = WeightLayout::in_out, .num_threads = 1});
    benchmark::ClobberMemory();
  }
}
BENCHMARK(tiny);

[[maybe_unused]] const bool registered = [] {
  constexpr std::pair<Kind, const char*> kKinds[] = {
      {Kind::forward, "forward"}, {Kind::dx, "dx"}, {Kind::dweight, "dweight"}};
  for (const Sizes& sizes : kSizes) {
    for (const auto& kind_and_name : kKinds) {
      const Kind kind = kind_and_name.first;
      const char* const kind_name = kind_and_name.second;
      for (int threads : {1, 2}) {
        const auto add = [&](const std::string& name, auto body) {
          const std::string title = std::string(kind_name) + " " + std::to_string(sizes.rows) + "x" +
                                    std::to_string(sizes.d_in) + "x" + std::to_string(sizes.d_out) +
                                    " threads:" + std::to_string(threads) + " " + name;
          benchmark::RegisterBenchmark(title.c_str(), [=](benchmark::State& state) {
            body(state, kind, sizes, threads);
          })->UseRealTime();
        };
        add("saccade", run_ours);
        for (const Library& library : libraries())
          add(library.name, [&library](benchmark::State& state, Kind k, const Sizes& s, int t) {
            run_library(state, library, k, s, t);
          });
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace saccade
