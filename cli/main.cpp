// The command `saccade`: reads the command line, runs one subcommand, turns errors into one line and exit code 2.
#include <fmt/format.h>
#include <saccade/runtime.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "cli/common/command_line.h"
#include "cli/common/common.h"
#include "cli/output/console.h"
#include "commands.h"

namespace {

using namespace saccade::cli;

constexpr const char* kNoOutput = "standard output could not be written";

/// A full disk or a closed pipe is noticed here at the latest.
void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw std::runtime_error(kNoOutput);
}

ExitCode run(CommandLine& command_line, const Action& action, int argc, char** argv) {
  const bool is_for_action = command_line.parse(argc, argv);
  if (is_for_action && !action) refuse("expected a subcommand; saccade --help lists them");
  const ExitCode code = is_for_action ? action() : kGood;
  flush_output();
  return code;
}

ExitCode run_command_line(CommandLine& command_line, const Action& action, int argc, char** argv) {
  try {
    return run(command_line, action, argc, argv);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const std::string message = std::ferror(stdout) != 0 ? kNoOutput : message_line(error.what());
    std::fputs(fmt::format("{}: {}\n", command_line.name(), message).c_str(), stderr);
    return kBadUsage;
  }
}

ExitCode run_saccade(int argc, char** argv) {
  CommandLine command_line("saccade", "Exact attention: computed fast, step by step, and as a picture.",
                           fmt::format("saccade {}", saccade::version()));
  const Command app = command_line.program();
  app.footer(
      "Results go to standard output, messages to standard error.\n"
      "Exit code: 0 good, 1 a check failed, 2 bad usage or input (nothing is written then).\n\n"
      "Start with:\n"
      "  saccade tour                 attention by hand, number by number\n"
      "  saccade explain tokens.json  the same for your own vectors\n"
      "  saccade run --help           fast attention on your tensors");

  Action action;
  add_tour(app, action);
  add_explain(app, action);
  add_run(app, action);
  add_inspect(app, action);
  add_heatmap(app, action);
  add_train(app, action);
  add_generate(app, action);
#ifdef SACCADE_HAS_TOKENIZER
  add_embed(app, action);
#endif
  add_look(app, action);
  add_bench(app, action);
  add_check(app, action);
  add_info(app, action);
  add_completion(command_line, action);
  return run_command_line(command_line, action, argc, argv);
}

/// There is no memory for a longer message either.
ExitCode complain_of_memory() {
  std::fputs("saccade: not enough memory\n", stderr);
  return kBadUsage;
}

std::terminate_handler end_otherwise = nullptr;

/// nlohmann-json needs memory to destroy a document, and an exception of a destructor comes here.
void end_without_memory() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    std::_Exit(complain_of_memory());
  } catch (...) {  // an error of the program
  }
  end_otherwise();
}

}  // namespace

int main(int argc, char** argv) {
  end_otherwise = std::set_terminate(end_without_memory);
  console::prepare();
  try {
    return run_saccade(argc, argv);
  } catch (const std::bad_alloc&) {
    return complain_of_memory();
  }
}
