#include "common.h"

#include <saccade/heatmap.h>
#include <saccade/io.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "cases/text_numbers.h"
#include "cli/output/terminal.h"
#include "writable.h"

namespace saccade::cli {
namespace fs = std::filesystem;
namespace {

// Adds the option `name`, as in "-n,--number", with one value, which `parse` converts to a number or refuses.
template <class T, class Parse>
Option add_parsed(Command app, const std::string& name, std::optional<T>& value, const std::string& help,
                  const std::string& wanted, Parse parse) {
  const std::string last = name.substr(name.rfind(',') + 1);
  const auto read = [&value, last, wanted, parse](const std::string& argument) {
    value = parse(argument);
    if (!value) refuse("{}: expected {}, got '{}'", last, wanted, argument);
  };
  return app.add_option(name, read, help);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string> read_lines(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
  }
  return lines;
}

// A path with "..", "." and links resolved.
fs::path resolved(const std::string& path) {
  std::error_code ignored;
  const fs::path result = fs::weakly_canonical(path, ignored);
  return ignored ? fs::path(path) : result;
}

void require_writable_file(const NamedPath& output) {
  const fs::path path = *output.path;
  std::error_code ignored;
  if (path.empty()) refuse("{} needs a file name", output.option);
  if (path == "-") refuse("{} needs a file: standard output is already used", output.option);
  if (fs::is_directory(path, ignored)) refuse("{}: {} is a folder", output.option, path.string());
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ignored)) refuse("{}: there is no folder {}", output.option, folder.string());
  if (!is_writable(folder)) refuse("{}: folder {} cannot be written to", output.option, folder.string());
}

}  // namespace

std::string message_line(std::string_view text) {
  const std::size_t end = text.find("] ");
  if (!text.starts_with('[') || end == std::string_view::npos) return visible(text);
  const std::string_view name = text.substr(1, end - 1);
  const auto is_of_a_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == ':'; };
  if (!std::ranges::all_of(name, is_of_a_name)) return visible(text);
  const std::string_view message = text.substr(end + 2);
  // Names the environment variable: users set it, and do not know our functions.
  return name.starts_with("SACCADE_") ? visible(fmt::format("{}: {}", name, message)) : visible(message);
}

void note(std::string_view command, std::string_view text) {
  std::fputs(fmt::format("saccade {}: {}\n", command, text).c_str(), stderr);
}

std::optional<std::int64_t> parse_integer(std::string_view text) { return cases::whole_number(text); }

std::optional<double> parse_number(std::string_view text) { return cases::finite_number(text); }

Option add_number(Command app, const std::string& name, std::optional<double>& value, const std::string& help) {
  return add_parsed(app, name, value, help, "a number", parse_number).type_name("X");
}

Option add_integer(Command app, const std::string& name, std::optional<std::int64_t>& value,
                   const std::string& help, std::int64_t min) {
  const auto parse = [min](std::string_view text) {
    const std::optional<std::int64_t> number = parse_integer(text);
    return number && *number >= min ? number : std::nullopt;
  };
  const bool bounded = min != std::numeric_limits<std::int64_t>::min();
  const std::string wanted = bounded ? fmt::format("a whole number of at least {}", min) : "a whole number";
  return add_parsed(app, name, value, help, wanted, parse).type_name("N");
}

void TokenOptions::add_to(Command app, const std::string& name, const std::string& whose,
                          const std::string& old_name) {
  name_ = name;
  const Option as_list =
      app.add_option(name_, list, "Names of " + whose + ", separated by commas").type_name("A,B,C");
  const Option as_file =
      app.add_option(name_ + "-file", file, "The same from a file, one name a line (for names with commas)")
          .type_name("FILE")
          .excludes(as_list);
  if (old_name.empty()) return;
  as_list.deprecated(old_name);
  as_file.deprecated(old_name + "-file");
}

std::vector<std::string> TokenOptions::read(std::int64_t count) const {
  if (!given()) return {};
  std::vector<std::string> tokens = list ? split(*list, ',') : read_lines(*file);
  if (static_cast<std::int64_t>(tokens.size()) != count) {
    refuse("{} names {} tokens, but there are {}", list ? name_ : name_ + "-file", tokens.size(), count);
  }
  return tokens;
}

std::vector<std::string> numbered_tokens(std::int64_t count) {
  std::vector<std::string> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(std::to_string(i));
  return tokens;
}

std::string listed(const std::vector<std::string>& tokens) {
  constexpr std::size_t kMost = 50;
  std::string text;
  for (std::size_t i = 0; i < std::min(tokens.size(), kMost); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, tokens[i]);
  }
  if (tokens.size() > kMost) text += fmt::format(", and {} more", tokens.size() - kMost);
  return text;
}

void require_writable(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].path) continue;
    require_writable_file(outputs[i]);
    const auto refuse_same = [&](const NamedPath& other) {
      if (!other.path || resolved(*other.path) != resolved(*outputs[i].path)) return;
      refuse("{} and {} name the same file, {}", other.option, outputs[i].option, *outputs[i].path);
    };
    std::for_each(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i), refuse_same);
    std::ranges::for_each(inputs, refuse_same);
  }
}

std::vector<cases::Problem> load_shapes(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("--shapes: " + path + " cannot be read");
  std::vector<cases::Problem> problems = cases::read_problems(file, path);
  if (file.bad()) throw std::runtime_error("--shapes: " + path + " cannot be read to its end");
  if (problems.empty()) refuse("--shapes: {} has no problem in it", path);
  return problems;
}

void require_one_standard_input(const std::vector<NamedPath>& inputs) {
  const NamedPath* first = nullptr;
  for (const NamedPath& input : inputs) {
    if (input.path != "-") continue;
    if (first != nullptr) refuse("{} and {} cannot both be read from standard input", first->option, input.option);
    first = &input;
  }
}

bool is_png(const NamedPath& picture) {
  if (picture.path == "-") return false;
  std::string ending = fs::path(*picture.path).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  if (ending != ".png" && ending != ".svg") {
    refuse("{} needs a name that ends in .svg or .png, not '{}'", picture.option, *picture.path);
  }
  return ending == ".png";
}

RenderedPicture::RenderedPicture(const NamedPath& file, std::string svg)
    : path_(*file.path), svg_(std::move(svg)) {
  if (is_png(file)) png_ = png_of_svg(svg_);
}

void RenderedPicture::write() const {
  if (path_ == "-") {
    fmt::print("{}", svg_);
  } else if (png_.empty()) {
    write_file(path_, svg_);
  } else {
    write_file(path_, png_);
  }
}

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1.0) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3f} s", seconds);
}

}  // namespace saccade::cli
