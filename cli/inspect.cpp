// saccade inspect: statistics of attention weights, without the matrix of weights.
#include <fmt/format.h>
#include <saccade/heatmap.h>
#include <saccade/inspect.h>
#include <saccade/io.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/common/call.h"
#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/output/terminal.h"
#include "commands.h"

namespace saccade::cli {
namespace {

struct InspectArguments {
  CallArguments call;
  NamedPath output{"--output", {}};
  std::string rows;
  std::optional<std::int64_t> top_k;
  bool entropy = false, max_weight = false, received = false, distance = false, lse = false;
  std::vector<std::string> pool;  // "512x512", and "mean" or "max"
  bool json = false;
};

enum class Form : std::uint8_t { text, npz, picture };

Form form_of(const NamedPath& output) {
  if (!output.path) return Form::text;
  if (output.path->ends_with(".npz")) return Form::npz;
  if (output.path->ends_with(".svg") || output.path->ends_with(".png")) return Form::picture;
  refuse("--output needs a name that ends in .npz, .svg or .png, not '{}'", *output.path);
}

std::vector<std::int64_t> parse_rows(const std::string& text) {
  std::vector<std::int64_t> rows;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const auto row = parse_integer(rest.substr(0, comma));
    if (!row || *row < 0) refuse("--rows: expected whole numbers from 0 on, as in 0,5,17, got '{}'", text);
    rows.push_back(*row);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return rows;
}

// Parses "512x512 max". Clamps the number of cells to the lengths, as further cells would be empty.
void parse_pool(const std::vector<std::string>& words, const Axes& axes, InspectOptions& wanted) {
  const std::string& size = words.front();
  const std::size_t cross = size.find('x');
  const auto rows = parse_integer(std::string_view(size).substr(0, cross));
  const auto keys =
      cross == std::string::npos ? std::nullopt : parse_integer(std::string_view(size).substr(cross + 1));
  constexpr std::int64_t kMost = 1 << 15;
  if (!rows || !keys || *rows < 1 || *keys < 1 || *rows > kMost || *keys > kMost)
    refuse("--pool: expected ROWSxKEYS, each from 1 to {}, as in 512x512, got '{}'", kMost, size);
  if (words.size() > 1 && words[1] != "mean" && words[1] != "max")
    refuse("--pool: expected mean or max, got '{}'", words[1]);
  wanted.pool_rows = std::min(*rows, axes.seqlen_q);
  wanted.pool_keys = std::min(*keys, axes.seqlen_k);
  wanted.pooling = words.size() > 1 && words[1] == "max" ? Pooling::max : Pooling::mean;
}

// The number of cells that fit into a picture.
std::string usual_pool(std::int64_t heads) {
  const auto across = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(heads))));
  const std::int64_t cells = heads == 1 ? 512 : std::max<std::int64_t>(460 / across, 32);
  return fmt::format("{0}x{0}", cells);
}

InspectOptions wanted_of(const InspectArguments& arguments, const Axes& axes, Form form) {
  InspectOptions wanted{.rows = parse_rows(arguments.rows),
                        .top_k = arguments.top_k.value_or(0),
                        .entropy = arguments.entropy,
                        .max_weight = arguments.max_weight,
                        .received = arguments.received,
                        .distance = arguments.distance};
  if (!arguments.pool.empty()) parse_pool(arguments.pool, axes, wanted);
  if (form == Form::picture && arguments.pool.empty()) parse_pool({usual_pool(axes.num_heads)}, axes, wanted);
  const bool asks = !wanted.rows.empty() || wanted.top_k > 0 || wanted.entropy || wanted.max_weight ||
                    wanted.received || wanted.distance || wanted.pool_rows > 0 || arguments.lse;
  if (!asks) wanted.entropy = wanted.max_weight = wanted.received = wanted.distance = true;
  if (form == Form::text && wanted.top_k > 0 && wanted.rows.empty() && axes.seqlen_q > 0)
    wanted.rows = {axes.seqlen_q - 1};
  return wanted;
}

struct InspectResults {
  Inspection found;
  Tensor o, lse;
  double seconds = 0.0;
};

// With v it computes the output too; both share the softmax denominators.
InspectResults compute(Call& call, InspectOptions wanted, bool wants_lse) {
  InspectResults results;
  const auto start = std::chrono::steady_clock::now();
  if (wants_lse || call.v) results.lse = Tensor(call.result_dtype(), call.rows_shape());
  call.options.lse = results.lse;
  if (call.v) {
    results.o = attention(call.q, call.k, call.v, call.options);
    call.options.lse = {};
    wanted.lse = results.lse;
  }
  results.found = inspect(call.q, call.k, wanted, call.options);
  results.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return results;
}

// ---- Files ---------------------------------------------------------------------------------------------------

std::map<std::string, Tensor> arrays_of(const InspectResults& results, const InspectOptions& wanted,
                                        bool wants_lse) {
  const Inspection& found = results.found;
  std::map<std::string, Tensor> arrays{{"rows", found.rows},
                                       {"top_keys", found.top_keys},
                                       {"top_weights", found.top_weights},
                                       {"entropy", found.entropy},
                                       {"max_weight", found.max_weight},
                                       {"received", found.received},
                                       {"distance", found.distance},
                                       {"pooled", found.pooled},
                                       {"mean_distance", found.mean_distance},
                                       {"o", results.o}};
  if (wants_lse) arrays["lse"] = results.lse;
  if (!wanted.rows.empty()) {
    arrays["row_indices"] =
        Tensor::copy_of(TensorView(wanted.rows.data(), {static_cast<std::int64_t>(wanted.rows.size())}));
  }
  std::erase_if(arrays, [](const auto& array) { return array.second.rank() == 0; });
  return arrays;
}

// The maps of the heads of one batch entry, with the labels of their picture.
struct Map {
  TensorView cells;
  HeatmapOptions options;
};

Map map_of(const InspectResults& results, const InspectOptions& wanted, const Axes& axes) {
  Map map{results.found.pooled, {}};
  if (map.cells.rank == 4) map.cells = map.cells.select(0, 0);
  const auto per_cell = [](std::int64_t length, std::int64_t cells) {
    return fmt::format("{}{}", length % cells == 0 ? "" : "some ", (length + cells / 2) / cells);
  };
  map.options.queries = axes.seqlen_q;
  map.options.keys = axes.seqlen_k;
  map.options.title = fmt::format("Attention of {} queries to {} keys", axes.seqlen_q, axes.seqlen_k);
  if (wanted.pool_rows == axes.seqlen_q && wanted.pool_keys == axes.seqlen_k) return map;
  const char* const kind = wanted.pooling == Pooling::max ? "largest" : "mean";
  map.options.value_name = fmt::format("{} weight", kind);
  map.options.caption =
      fmt::format("{} \u00d7 {} cells, each the {} of {} \u00d7 {} weights.", wanted.pool_rows, wanted.pool_keys,
                  kind, per_cell(axes.seqlen_q, wanted.pool_rows), per_cell(axes.seqlen_k, wanted.pool_keys));
  return map;
}

// ---- A summary -----------------------------------------------------------------------------------------------

// The part of a tensor [..., heads, n] that belongs to one head, as doubles.
std::vector<double> numbers_of(const Tensor& tensor, std::int64_t head, std::int64_t heads) {
  const std::int64_t count = tensor.size() / heads;
  const Tensor numbers = Tensor::copy_of(tensor, DType::f64);
  const auto part =
      numbers.values<double>().subspan(static_cast<std::size_t>(head * count), static_cast<std::size_t>(count));
  return {part.begin(), part.end()};
}

double mean_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

struct Share {
  std::int64_t key;
  double number;
};

std::vector<Share> largest_of(const std::vector<double>& numbers, std::size_t most) {
  std::vector<Share> shares;
  shares.reserve(numbers.size());
  for (const double number : numbers) shares.push_back({static_cast<std::int64_t>(shares.size()), number});
  const auto end = shares.begin() + static_cast<std::ptrdiff_t>(std::min(most, shares.size()));
  std::partial_sort(shares.begin(), end, shares.end(), [](const Share& a, const Share& b) {
    return a.number > b.number || (a.number == b.number && a.key < b.key);
  });
  return {shares.begin(), end};
}

struct Head {
  std::int64_t batch, head;
  std::optional<double> entropy, max_weight, distance;  // means over the rows
  std::vector<Share> received;                          // the largest
};

std::vector<Head> heads_of(const Inspection& found, const Axes& axes) {
  constexpr std::size_t kMaxKeys = 5;
  const std::int64_t count = axes.batch * axes.num_heads;
  std::vector<Head> heads;
  for (std::int64_t i = 0; i < count; ++i) {
    Head head{i / axes.num_heads, i % axes.num_heads, {}, {}, {}, {}};
    if (found.entropy.size() > 0) head.entropy = mean_of(numbers_of(found.entropy, i, count));
    if (found.max_weight.size() > 0) head.max_weight = mean_of(numbers_of(found.max_weight, i, count));
    if (found.mean_distance.size() > 0) head.distance = numbers_of(found.mean_distance, i, count).front();
    if (found.received.size() > 0) head.received = largest_of(numbers_of(found.received, i, count), kMaxKeys);
    heads.push_back(std::move(head));
  }
  return heads;
}

std::string shares_text(const std::vector<Share>& shares) {
  std::string text;
  for (const auto& [key, number] : shares)
    text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", key, number);
  return text;
}

void print_heads(const std::vector<Head>& heads, const Axes& axes, const Terminal& terminal) {
  const Head& first = heads.front();
  Table table(1);
  std::vector<std::string> names{"head"};
  const auto add_if = [&](bool is_there, const char* name) {
    if (is_there) names.emplace_back(name);
  };
  add_if(first.entropy.has_value(), "mean entropy (nats)");
  add_if(first.max_weight.has_value(), "mean largest weight");
  add_if(first.distance.has_value(), "mean distance");
  if (names.size() == 1 && first.received.empty()) return;
  table.add_row(names, Table::Tone::normal, first.received.empty() ? "" : "  keys that receive most");
  for (const Head& head : heads) {
    std::vector<std::string> cells{axes.batch > 1 ? fmt::format("{}, {}", head.batch, head.head)
                                                  : fmt::format("{}", head.head)};
    if (head.entropy) cells.push_back(fmt::format("{:.3f}", *head.entropy));
    if (head.max_weight) cells.push_back(fmt::format("{:.4f}", *head.max_weight));
    if (head.distance) cells.push_back(fmt::format("{:.1f}", *head.distance));
    table.add_row(std::move(cells), Table::Tone::normal,
                  head.received.empty() ? "" : "  " + shares_text(head.received));
  }
  fmt::print("{}", table.to_string(terminal));
}

// The best keys of the chosen rows.
std::vector<Share> best_of(const Inspection& found, std::int64_t head, std::int64_t heads, std::int64_t row) {
  const auto top_k = static_cast<std::size_t>(found.top_keys.shape(-1));
  const std::vector<double> keys = numbers_of(found.top_keys, head, heads);
  const std::vector<double> weights = numbers_of(found.top_weights, head, heads);
  std::vector<Share> best;
  for (std::size_t i = static_cast<std::size_t>(row) * top_k; i < (static_cast<std::size_t>(row) + 1) * top_k; ++i)
    if (keys[i] >= 0) best.push_back({static_cast<std::int64_t>(keys[i]), weights[i]});
  return best;
}

void print_best(const InspectResults& results, const InspectOptions& wanted, const Axes& axes) {
  const std::int64_t heads = axes.batch * axes.num_heads;
  for (const std::int64_t row : wanted.rows) {
    fmt::print("Largest weights of row {}:\n", row);
    for (std::int64_t head = 0; head < heads; ++head)
      fmt::print("  head {}: {}\n", head, shares_text(best_of(results.found, head, heads, row)));
  }
}

Json shares_json(const std::vector<Share>& shares, const char* name) {
  Json list = Json::array();
  for (const auto& [key, number] : shares) list.push_back({{"key", key}, {name, json_number(number)}});
  return list;
}

void print_summary_json(const Call& call, const InspectResults& results, const InspectOptions& wanted) {
  const Axes axes = call.axes();
  const std::int64_t count = axes.batch * axes.num_heads;
  Json list = Json::array();
  for (const Head& head : heads_of(results.found, axes)) {
    Json entry{{"batch", head.batch}, {"head", head.head}};
    if (head.entropy) entry["mean_entropy"] = json_number(*head.entropy);
    if (head.max_weight) entry["mean_max_weight"] = json_number(*head.max_weight);
    if (head.distance) entry["mean_distance"] = json_number(*head.distance);
    if (!head.received.empty()) entry["received"] = shares_json(head.received, "received");
    for (const std::int64_t row : wanted.top_k > 0 ? wanted.rows : std::vector<std::int64_t>{})
      entry["top"].push_back(
          {{"row", row},
           {"keys",
            shares_json(best_of(results.found, head.batch * axes.num_heads + head.head, count, row), "weight")}});
    list.push_back(std::move(entry));
  }
  print_json({{"seqlen_q", axes.seqlen_q},
              {"seqlen_k", axes.seqlen_k},
              {"seconds", results.seconds},
              {"isa", std::string(name_of(active_isa()))},
              {"threads", call.threads()},
              {"heads", list}});
}

void print_summary(const InspectResults& results, const InspectOptions& wanted, const Axes& axes) {
  const Terminal terminal = Terminal::of_standard_output();
  print_heads(heads_of(results.found, axes), axes, terminal);
  if (wanted.top_k > 0) print_best(results, wanted, axes);
  if (wanted.pool_rows == 0) return;
  const Map map = map_of(results, wanted, axes);
  fmt::print("{}", heatmap_terminal(map.cells, map.options, terminal.color, terminal.width));
}

ExitCode inspect(const InspectArguments& arguments) {
  const Form form = form_of(arguments.output);
  const std::vector<NamedPath> inputs = arguments.call.inputs();
  require_one_standard_input(inputs);
  require_writable({arguments.output}, inputs);
  const std::unique_ptr<Call> call = load_call(arguments.call);
  const Axes axes = call->axes();
  const InspectOptions wanted = wanted_of(arguments, axes, form);
  const bool shows_map = form == Form::picture || (form == Form::text && wanted.pool_rows > 0);
  if (shows_map && axes.batch != 1) refuse("--q holds a batch of {}: a picture shows one entry", axes.batch);
  if (axes.seqlen_q == 0 || axes.seqlen_k == 0 || axes.batch * axes.num_heads == 0)
    refuse("--q and --k have shapes {} and {}: no pairs to inspect", to_string(call->q.dims()),
           to_string(call->k.dims()));

  const InspectResults results = compute(*call, wanted, arguments.lse);
  if (form == Form::npz) save_npz(*arguments.output.path, arrays_of(results, wanted, arguments.lse));
  if (form == Form::picture) {
    const Map map = map_of(results, wanted, axes);
    RenderedPicture(arguments.output, heatmap_svg(map.cells, map.options)).write();
  }
  for (const std::string& text : call->notes) note("inspect", text);
  note("inspect", fmt::format("q {} k {} in {} ({}, {} {})", to_string(call->q.dims()), to_string(call->k.dims()),
                              duration(results.seconds), name_of(active_isa()), call->threads(),
                              call->threads() == 1 ? "thread" : "threads"));
  if (arguments.json)
    print_summary_json(*call, results, wanted);
  else if (form == Form::text)
    print_summary(results, wanted, axes);
  return kGood;
}

void add_statistics(Command command, InspectArguments& arguments) {
  command.add_option("--rows", arguments.rows, "All weights of these rows").type_name("I,J,...");
  add_integer(command, "--top-k", arguments.top_k, "The keys with the K largest weights of each row", 1)
      .type_name("K");
  command.add_flag("--entropy", arguments.entropy, "The entropy of each row, in nats");
  command.add_flag("--max", arguments.max_weight, "The largest weight of each row");
  command.add_flag("--received", arguments.received, "The attention that each key receives from all rows");
  command.add_flag("--distance", arguments.distance, "How far each row looks, on average");
  command.add_flag("--lse", arguments.lse, "The logarithm of each row's softmax denominator");
  command.add_option("--pool", arguments.pool, "A map of all weights in so many cells: their mean or the largest")
      .type_name("ROWSxKEYS [mean|max]")
      .expected(1, 2);
}

}  // namespace

void add_inspect(Command app, Action& action) {
  const Command command = app.add_subcommand("inspect", "Statistics and a map of your own q and k, however long");
  const auto arguments = std::make_shared<InspectArguments>();
  arguments->call.add_tensors(command, false);
  command
      .add_option("-o,--output", arguments->output.path,
                  "All results as arrays, or the map as a picture; without, a summary")
      .type_name("OUT.npz|OUT.svg|OUT.png");
  add_statistics(command, *arguments);
  arguments->call.add_options(command, false);
  command.add_flag("--json", arguments->json, "Print the summary as JSON");
  command.footer(
      "inspect takes tensors q and k of any length; explain shows each step for a few vectors, tour for the "
      "published\n"
      "ones, look shows a trained model.\n\n"
      "The matrix of weights is never made: memory is that of the results. Without a statistic: entropy, largest\n"
      "weight, attention received and distance; for a picture, as many cells as it holds. With --v the output is\n"
      "computed too, and written as o into OUT.npz.\n\n"
      "Examples:\n"
      "  saccade inspect --q Q.npy --k K.npy --causal bottom-right\n"
      "  saccade inspect --q Q.npy --k K.npy --causal top-left -o map.png\n"
      "  saccade inspect --q Q.npy --k K.npy --pool 256x256 max -o map.svg\n"
      "  saccade inspect --q Q.npy --k K.npy --top-k 8 --entropy --rows 0,17 -o statistics.npz");
  command.callback([=, &action] { action = [=] { return inspect(*arguments); }; });
}

}  // namespace saccade::cli
