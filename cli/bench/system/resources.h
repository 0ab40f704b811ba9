// What this process has used, as the operating system counts it.
#pragma once

namespace saccade::cli::bench {

/// The processor time of this thread, or of all threads, in seconds.
double thread_seconds();
double process_seconds();

/// The memory that the process holds now, and the most that it has held since reset_most_memory() or its start, in
/// bytes; 0 where the system does not provide it.
double memory();
double most_memory();

/// Gives memory that is free but still held back to the system, so that it counts again when it is used, and sets
/// the most memory to that held now, as far as the system can.
void reset_most_memory();

}  // namespace saccade::cli::bench
