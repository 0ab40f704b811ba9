// The ranks of a distributed call as threads of this process.
#pragma once

#include <saccade/communicator.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace saccade::cases {

/// Calls body(communicator) on a thread for each rank; returns what each rank threw, empty if nothing. `timeout`:
/// how long a rank waits for another.
inline std::vector<std::string> on_local_ranks(int ranks,
                                               const std::function<void(distributed::Communicator&)>& body,
                                               std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const auto communicators = distributed::local_communicators(ranks);
  std::vector<std::string> errors(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < communicators.size(); ++rank) {
    communicators[rank]->set_timeout(timeout);
    threads.emplace_back([&, rank] {
      try {
        body(*communicators[rank]);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace saccade::cases
