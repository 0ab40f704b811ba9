#include "kv_cache/state.h"

#include <algorithm>
#include <charconv>

#include "core/axes.h"
#include "core/check.h"
#include "kv_cache/storage.h"

namespace saccade {
namespace {

/// Text of a state for messages: a file may hold any.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string result(text.substr(0, kMost));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return "'" + result + (text.size() > kMost ? "...'" : "'");
}

}  // namespace

// ---- StateReader ---------------------------------------------------------------------------------------------

const std::string& StateReader::text(const std::string& name) const {
  const auto found = state_.metadata.find(name);
  if (found == state_.metadata.end()) refuse(kFromState, "the metadata has no ", name);
  return found->second;
}

std::int64_t StateReader::number(const std::string& name) const {
  const std::string& digits = text(name);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size())
    refuse(kFromState, name, " in the metadata must be an integer, but it is ", shown(digits));
  return number;
}

bool StateReader::flag(const std::string& name) const {
  const std::string& value = text(name);
  if (value != "true" && value != "false")
    refuse(kFromState, name, " in the metadata must be true or false, but it is ", shown(value));
  return value == "true";
}

DType StateReader::dtype(const std::string& name) const {
  const std::string& type = text(name);
  const auto found = std::ranges::find(kKvTypes, std::string_view(type), name_of);
  if (found == kKvTypes.end())
    refuse(kFromState, name, " in the metadata must be a type of keys and values, but it is ", shown(type));
  return *found;
}

const Tensor& StateReader::tensor(const std::string& name, DType dtype,
                                  std::initializer_list<std::optional<std::int64_t>> shape) {
  const auto found = state_.tensors.find(name);
  if (found == state_.tensors.end()) refuse(kFromState, "there is no tensor ", name);
  const Tensor& tensor = found->second;
  bool fits = tensor.dtype() == dtype && tensor.shape().size() == shape.size();
  std::string wanted;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::optional<std::int64_t> length = shape.begin()[i];
    wanted += (i == 0 ? "" : ", ") + (length ? std::to_string(*length) : "any length");
    fits = fits && (!length || tensor.shape()[i] == *length);
  }
  if (!fits)
    refuse(kFromState, name, " must be ", name_of(dtype), " [", wanted, "], but it is ", name_of(tensor.dtype()),
           " ", to_string(tensor.shape()));
  read_.insert(name);
  return tensor;
}

void StateReader::check_all_read() const {
  for (const auto& [name, tensor] : state_.tensors)
    if (!read_.contains(name)) refuse(kFromState, "the tensor ", shown(name), " belongs to no part of a cache");
}

// ---- Options -------------------------------------------------------------------------------------------------

namespace {

constexpr const char* kFormat = "saccade.kv_cache";
constexpr std::int64_t kVersion = 1;

constexpr std::pair<const char*, std::int64_t KvCacheOptions::*> kNumbers[] = {
    {"batch", &KvCacheOptions::batch},         {"num_kv_heads", &KvCacheOptions::num_kv_heads},
    {"head_dim", &KvCacheOptions::head_dim},   {"head_dim_v", &KvCacheOptions::head_dim_v},
    {"page_size", &KvCacheOptions::page_size}, {"window", &KvCacheOptions::window},
};

std::string text_of_flag(bool flag) { return flag ? "true" : "false"; }

void write_options(const KvCacheOptions& options, KvCacheState& state) {
  std::map<std::string, std::string>& to = state.metadata;
  to = {{"format", kFormat},
        {"version", std::to_string(kVersion)},
        {"dtype", std::string(name_of(options.dtype))},
        {"dtype_v", std::string(name_of(*options.dtype_v))},
        {"rotate", text_of_flag(*options.rotate)},
        {"causal", text_of_flag(options.causal)}};
  for (const auto& [name, number] : kNumbers) to[name] = std::to_string(options.*number);
  if (!options.rope) return;
  const RopeOptions rope = options.rope->options();
  to["rope_pairs"] = rope.pairs == RopePairs::half ? "half" : "interleaved";
  state.tensors["rope_frequencies"] =
      Tensor::copy_of(TensorView(rope.frequencies.data(), {static_cast<std::int64_t>(rope.frequencies.size())}));
}

Rope rope_in(StateReader& state, std::int64_t head_dim) {
  const std::string& pairs = state.text("rope_pairs");
  if (pairs != "half" && pairs != "interleaved")
    refuse(kFromState, "rope_pairs in the metadata must be half or interleaved, but it is ", shown(pairs));
  const auto frequencies = state.tensor("rope_frequencies", DType::f64, {std::nullopt}).values<double>();
  if (frequencies.empty())
    refuse(kFromState, "rope_frequencies must have a number for each pair, but it is empty");
  return Rope(head_dim, {.rotary_dim = 2 * static_cast<std::int64_t>(frequencies.size()),
                         .pairs = pairs == "half" ? RopePairs::half : RopePairs::interleaved,
                         .frequencies = {frequencies.begin(), frequencies.end()}});
}

KvCacheOptions options_in(StateReader& state) {
  if (!state.has_text("format") || state.text("format") != kFormat)
    refuse(kFromState, "this is not the state of a cache: format in the metadata must be ", kFormat,
           state.has_text("format") ? ", but it is " + shown(state.text("format")) : ", but there is none");
  if (const std::int64_t version = state.number("version"); version != kVersion)
    refuse(kFromState, "version must be ", kVersion, ", the only one that this release reads, but it is ",
           version);
  KvCacheOptions options{.dtype = state.dtype("dtype"),
                         .dtype_v = state.dtype("dtype_v"),
                         .rotate = state.flag("rotate"),
                         .causal = state.flag("causal")};
  for (const auto& [name, number] : kNumbers) options.*number = state.number(name);
  if (state.has_text("rope_pairs")) options.rope = rope_in(state, options.head_dim);
  return options;
}

}  // namespace

// ---- Lengths and rows ----------------------------------------------------------------------------------------

void KvCache::Storage::write(KvCacheState& state) const {
  for (const auto& [name, numbers] :
       {std::pair{"lengths", &lengths_}, {"first_kept", &first_kept_}, {"starts", &starts_}})
    state.tensors[name] = Tensor::copy_of(TensorView(numbers->data(), {config_.batch}));
  write_rows(state);
}

void KvCache::Storage::read(StateReader& state) {
  for (const auto& [name, numbers] :
       {std::pair{"lengths", &lengths_}, {"first_kept", &first_kept_}, {"starts", &starts_}})
    std::ranges::copy(state.tensor(name, DType::i64, {config_.batch}).values<std::int64_t>(), numbers->begin());
  for (std::int64_t b = 0; b < config_.batch; ++b) {
    if (length(b) < 0 || length(b) > kMaxLength)
      refuse(kFromState, "lengths[", b, "] must lie between 0 and 2^40, but it is ", length(b));
    const std::int64_t most = first_seen(length(b)), step = dropped_together();
    if (first_kept(b) < 0 || first_kept(b) > most || first_kept(b) % step != 0)
      refuse(kFromState, "first_kept[", b, "] must be a multiple of ", step, " from 0 to ", most, ", but it is ",
             first_kept(b));
    if (start(b) < 0 || start(b) > length(b))
      refuse(kFromState, "starts[", b, "] must lie between 0 and the length ", length(b), ", but it is ",
             start(b));
  }
  read_rows(state);
}

KvCacheState KvCache::state() const {
  KvCacheState state;
  write_options(config(), state);
  storage_->write(state);
  return state;
}

KvCache KvCache::from_state(const KvCacheState& state) {
  StateReader reader(state);
  const KvCacheOptions options = options_in(reader);
  // A cache allocates something for each sequence, so the batch must be that of the tensors.
  reader.tensor("lengths", DType::i64, {options.batch});
  KvCache cache(options);
  cache.storage_->read(reader);
  reader.check_all_read();
  return cache;
}

}  // namespace saccade
