// Standard streams as the operating system has them: whether they are terminals, and how wide.
#pragma once

#include <optional>

namespace saccade::cli::console {

/// A standard stream of this process.
enum class Stream { output, error };

/// Called once, before anything is read or written: streams carry bytes as they are, and a terminal shows UTF-8
/// and obeys the codes of colors.
void prepare();

/// Whether a stream goes to a terminal.
bool is_terminal(Stream stream);

/// The kind of terminal, as TERM names it on Unix; nullptr if it is not known.
const char* terminal_name();

/// The columns of the terminal of standard output; nothing without one.
std::optional<int> columns();

}  // namespace saccade::cli::console
