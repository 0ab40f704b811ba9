// Quantized keys and values that several ranks hold: the bits of one process.
#include <gmock/gmock.h>
#include <saccade/decode.h>
#include <saccade/distributed.h>
#include <saccade/kv_cache.h>

#include <array>
#include <functional>

#include "cases/local_ranks.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using cases::on_local_ranks;
using distributed::Communicator;
using distributed::Method;
using distributed::ParallelConfig;
using distributed::Run;
using distributed::Sharding;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr std::int64_t kHeads = 6, kKvHeads = 3, kDim = 48, kDimV = 40, kKeys = 9000, kRows = 30;

struct Types {
  DType k, v;
  std::optional<bool> rotate{};
};
const std::vector<Types>& all_types() {
  static const std::vector<Types> all{
      {DType::i8, DType::i8}, {DType::i4, DType::i4}, {DType::f8e4m3, DType::i8}, {DType::i8, DType::bf16, true}};
  return all;
}

/// A cache of some of the keys of the problem.
KvCache cache_of(const Types& types, const std::vector<Run>& runs) {
  const Tensor k = random_tensor({1, kKvHeads, kKeys, kDim}, 1), v = random_tensor({1, kKvHeads, kKeys, kDimV}, 2);
  KvCache cache({.num_kv_heads = kKvHeads,
                 .head_dim = kDim,
                 .head_dim_v = kDimV,
                 .dtype = types.k,
                 .dtype_v = types.v,
                 .rotate = types.rotate});
  for (const Run& run : runs)
    cache.append(k.view().slice(2, run.begin, run.end), v.view().slice(2, run.begin, run.end));
  return cache;
}

/// The options of quantized tensors that a cache gives, and others.
AttentionOptions scales_of(const KvCache& cache, AttentionOptions options) {
  const AttentionOptions own = cache.options();
  options.k_scale = own.k_scale, options.v_scale = own.v_scale;
  options.k_multipliers = own.k_multipliers, options.v_multipliers = own.v_multipliers;
  options.k_rotated = own.k_rotated, options.v_rotated = own.v_rotated;
  return options;
}

class QuantizedKeysOfRanksOfEachIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(QuantizedKeysOfRanksOfEachIsa);

TEST_P(QuantizedKeysOfRanksOfEachIsa, DecodeHasTheBitsOfOneProcess) {
  const Sharding keys = Sharding::striped(kKeys, kRanks, kDecodeSplitKeys);
  constexpr std::array kDTypes{DType::f32, DType::bf16};
  std::size_t turn = 0;
  for (const Types& types : all_types()) {
    const KvCache whole = cache_of(types, {{0, kKeys}});
    for (const DType dtype : one_if_slow(kDTypes, ++turn)) {
      const Tensor q = random_tensor({1, kHeads, 2, kDim}, 3, dtype);
      const AttentionOptions options{.causal = Causal::bottom_right, .window_left = 7000};
      const Tensor wanted = decode(q, whole.k(), whole.v(), scales_of(whole, options));
      const auto errors = on_local_ranks(kRanks, [&](Communicator& communicator) {
        const KvCache own = cache_of(types, keys.runs(communicator.rank()));
        Tensor o(dtype, wanted.shape());
        distributed::decode(communicator, q, own.k(), own.v(), o, {.keys = keys}, scales_of(own, options));
        if (!same_bits(o, wanted)) throw std::runtime_error("o differs");
      });
      EXPECT_THAT(errors, Each(std::string())) << name_of(types.k) << " " << name_of(types.v);
    }
  }
}

TEST_P(QuantizedKeysOfRanksOfEachIsa, AttentionHasTheBitsOfOneProcess) {
  const Tensor q = random_tensor({1, kHeads, kRows, kDim}, 3);
  ParallelConfig division{.rows = Sharding::contiguous(kRows, kRanks), .keys = Sharding::zigzag(kKeys, kRanks)};
  division.chunk = kOriginAlignment;
  const AttentionOptions options{.softcap = 20.0, .causal = Causal::bottom_right};
  constexpr std::array kMethods{Method::automatic, Method::gather, Method::heads, Method::stream};
  std::size_t turn = 0;
  for (const Types& types : all_types()) {
    const KvCache whole = cache_of(types, {{0, kKeys}});
    Tensor wanted(DType::f32, {1, kHeads, kRows, kDimV});
    attention(q, whole.k(), whole.v(), wanted, scales_of(whole, options));
    for (const Method method : one_if_slow(kMethods, ++turn)) {
      division.method = method;
      const auto errors = on_local_ranks(kRanks, [&](Communicator& communicator) {
        const KvCache own = cache_of(types, division.keys.runs(communicator.rank()));
        const distributed::Run rows = division.rows.runs(communicator.rank())[0];
        Tensor o(DType::f32, {1, kHeads, rows.size(), kDimV});
        distributed::attention(communicator, q.view().slice(2, rows.begin, rows.end), own.k(), own.v(), o,
                               division, scales_of(own, options));
        if (!same_bits(o, Tensor::copy_of(wanted.view().slice(2, rows.begin, rows.end))))
          throw std::runtime_error("o differs");
      });
      EXPECT_THAT(errors, Each(std::string())) << name_of(types.k) << ", " << name_of(method);
    }
  }
}

TEST(QuantizedKeysOfRanks, AreRefusedOnEveryRankIfOneIsWrong) {
  const Tensor q(DType::f32, {1, kHeads, 2, kDim});
  const Sharding keys = Sharding::contiguous(kKeys, kRanks);
  using Change = std::function<void(int rank, AttentionOptions&)>;
  const Tensor short_scale(DType::f32, {kKvHeads, 7, 1});
  Tensor channels(DType::f32, {kDim});
  const auto errors_of = [&](const Change& change) {
    return on_local_ranks(kRanks, [&](Communicator& communicator) {
      const KvCache own = cache_of({DType::i8, DType::i8}, keys.runs(communicator.rank()));
      AttentionOptions options = scales_of(own, {});
      change(communicator.rank(), options);
      Tensor o(DType::f32, {1, kHeads, 2, kDimV});
      distributed::decode(communicator, q, own.k(), own.v(), o, {.keys = keys}, options);
    });
  };
  EXPECT_THAT(errors_of([](int, AttentionOptions&) {}), Each(std::string()));
  EXPECT_THAT(errors_of([&](int rank, AttentionOptions& o) {
                if (rank == 1) o.k_scale = short_scale;
              }),
              Each(HasSubstr("[distributed::decode] rank 1: k_scale must broadcast to [1, 3, 3000, 48]")));
  EXPECT_THAT(errors_of([&](int rank, AttentionOptions& o) {
                if (rank == 2) o.v_scale = {};
              }),
              Each(HasSubstr("rank 2: v is i8, which needs v_scale")));
  EXPECT_THAT(errors_of([&](int rank, AttentionOptions& o) { o.v_rotated = rank == 1; }),
              Each(HasSubstr("v_rotated must be the same on every rank, but rank 1 has another one")));
  EXPECT_THAT(errors_of([&](int rank, AttentionOptions& o) {
                if (rank == 1) o.k_scale = channels;
              }),
              Each(HasSubstr("k_scale must be the same on every rank, but rank 1 has another one")));
}

TEST(QuantizedKeysOfRanks, HaveNoGradients) {
  const Tensor q(DType::f32, {8, kDim}), k(DType::f8e4m3, {8, kDim}), scale(DType::f32, {1}), lse(DType::f32, {8});
  const ParallelConfig division{.rows = Sharding::contiguous(8, 1)};
  const auto rank = distributed::local_communicators(1);
  Tensor dq(DType::f32, {8, kDim});
  const auto refused = [&](const AttentionOptions& options) -> std::string {
    try {
      distributed::attention_backward(*rank[0], q, k, k, {.o = q, .lse = lse, .dout = q}, {.dq = dq}, division,
                                      options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused({}), HasSubstr("k is f8e4m3, but attention_backward has no quantized keys and values"));
  EXPECT_THAT(refused({.k_scale = scale}), HasSubstr("quantized keys and values have no gradients"));
}

}  // namespace
}  // namespace saccade::test
