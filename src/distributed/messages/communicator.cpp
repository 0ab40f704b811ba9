// What all communicators share: waiting, and gathering by messages.
#include "saccade/communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <list>
#include <new>

#include "core/check.h"
#include "core/threads/platform.h"
#include "distributed/messages/messages.h"

namespace saccade::distributed {

void Communicator::set_timeout(std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) refuse("Communicator::set_timeout", "the timeout must be positive");
  timeout_ = timeout;
}

void Communicator::fail(const std::string& why, std::vector<std::shared_ptr<void>> memory) {
  if (!memory.empty()) keep_until_exit(std::move(memory));
  if (failure_.empty()) failure_ = why.empty() ? "unknown" : why;
}

void keep_until_exit(std::vector<std::shared_ptr<void>> memory) noexcept {
  using Memory = std::vector<std::shared_ptr<void>>;
  try {
    static auto* const all = new std::list<Memory>;  // never destroyed: MPI_Finalize comes late
    static threads::Mutex mutex;
    const threads::Lock lock(mutex);
    all->push_back(std::move(memory));
  } catch (const std::bad_alloc&) {
    alignas(Memory) std::byte never_destroyed[sizeof(Memory)];
    new (never_destroyed) Memory(std::move(memory));
  }
}

void Communicator::all_gather(const void* own, void* all, std::size_t bytes,
                              std::chrono::steady_clock::time_point until) {
  auto* const to = static_cast<std::byte*>(all);
  const auto of_rank = [&](int other) { return to + static_cast<std::size_t>(other) * bytes; };
  std::memcpy(of_rank(rank()), own, bytes);
  std::vector<Request> requests;
  for (int step = 1; step < size(); ++step) {
    const int from = (rank() - step + size()) % size(), receiver = (rank() + step) % size();
    requests.push_back(receive(from, of_rank(from), bytes));
    requests.push_back(send(receiver, of_rank(rank()), bytes));
  }
  wait(*this, requests, until);
}

void wait(Communicator& communicator, const std::vector<Communicator::Request>& requests,
          std::chrono::steady_clock::time_point until) {
  using Clock = std::chrono::steady_clock;
  constexpr int kSpins = 64;  // then yields to other processes of an overloaded machine
  std::size_t next = 0;
  for (int spins = 0; next < requests.size(); ++spins) {
    while (next < requests.size() && communicator.is_finished(requests[next])) ++next, spins = 0;
    if (next == requests.size()) return;
    if (spins < kSpins) continue;
    threads::yield();
    if (Clock::now() >= until)
      throw CommunicationError("no answer within " +
                               std::to_string(std::chrono::duration<double>(communicator.timeout()).count()) +
                               " s");
  }
}

}  // namespace saccade::distributed
