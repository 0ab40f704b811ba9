// The threading layer "none": the thread that makes a call does all of its work.
#include "core/threads/team.h"

namespace saccade::threads {

std::string_view layer_name() { return "none"; }

int default_threads() { return 1; }

int most_threads() { return 1; }

void run_team(Team& team) { team.run_all(); }

}  // namespace saccade::threads
