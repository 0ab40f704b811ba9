// local_communicators(): the ranks are threads of one process.
#include <cstring>
#include <deque>
#include <map>

#include "core/check.h"
#include "core/threads/platform.h"
#include "saccade/communicator.h"

namespace saccade::distributed {
namespace {

/// The messages of all ranks. The first side of a message waits here for the other; the second one copies it.
class Mailbox {
 public:
  struct Message {
    void* data = nullptr;
    std::size_t bytes = 0;
    bool is_done = false;
  };

  std::shared_ptr<Message> send(int from, int to, const void* data, std::size_t bytes) {
    return meet(from, to, const_cast<void*>(data), bytes, true);
  }
  std::shared_ptr<Message> receive(int from, int to, void* data, std::size_t bytes) {
    return meet(from, to, data, bytes, false);
  }

  bool is_done(const Message& message) {
    const threads::Lock lock(mutex_);
    return message.is_done;
  }

  /// One all-gather of all ranks.
  struct Round {
    explicit Round(std::size_t size) : bytes(size) {}

    std::vector<std::byte> bytes;
    int arrived = 0;
    std::shared_ptr<Message> message = std::make_shared<Message>();  // done when all ranks have arrived
  };

  /// Adds the bytes of one of `size` ranks to the open round.
  std::shared_ptr<Round> give(int rank, int size, const void* own, std::size_t bytes) {
    const threads::Lock lock(mutex_);
    if (!round_) round_ = std::make_shared<Round>(static_cast<std::size_t>(size) * bytes);
    if (round_->bytes.size() != static_cast<std::size_t>(size) * bytes)
      throw CommunicationError("ranks give another number of bytes than others");
    std::memcpy(round_->bytes.data() + static_cast<std::size_t>(rank) * bytes, own, bytes);
    std::shared_ptr<Round> round = round_;
    if (++round->arrived == size) {
      round->message->is_done = true;
      round_ = nullptr;
    }
    return round;
  }

 private:
  std::shared_ptr<Message> meet(int from, int to, void* data, std::size_t bytes, bool sends) {
    const threads::Lock lock(mutex_);
    auto own = std::make_shared<Message>(Message{data, bytes});
    auto& waiting = (sends ? receivers_ : senders_)[{from, to}];
    if (waiting.empty()) {
      (sends ? senders_ : receivers_)[{from, to}].push_back(own);
      return own;
    }
    const std::shared_ptr<Message> other = waiting.front();
    waiting.pop_front();
    if (other->bytes != bytes) throw CommunicationError("a message has another size than its receiver expects");
    std::memcpy(sends ? other->data : data, sends ? data : other->data, bytes);
    own->is_done = other->is_done = true;
    return own;
  }

  threads::Mutex mutex_;
  std::shared_ptr<Round> round_;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> senders_, receivers_;
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Mailbox> mailbox, int rank, int size)
      : mailbox_(std::move(mailbox)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Request send(int to, const void* data, std::size_t bytes) override {
    return add(mailbox_->send(rank_, to, data, bytes));
  }
  Request receive(int from, void* data, std::size_t bytes) override {
    return add(mailbox_->receive(from, rank_, data, bytes));
  }
  void all_gather(const void* own, void* all, std::size_t bytes,
                  std::chrono::steady_clock::time_point until) override {
    const auto round = mailbox_->give(rank_, size_, own, bytes);
    distributed::wait(*this, {add(round->message)}, until);
    std::memcpy(all, round->bytes.data(), round->bytes.size());
  }
  bool is_finished(Request request) override {
    const auto found = messages_.find(request);
    if (!mailbox_->is_done(*found->second)) return false;
    messages_.erase(found);
    return true;
  }

 private:
  Request add(std::shared_ptr<Mailbox::Message> message) {
    messages_[++last_] = std::move(message);
    return last_;
  }

  std::shared_ptr<Mailbox> mailbox_;
  int rank_, size_;
  Request last_ = 0;
  std::map<Request, std::shared_ptr<Mailbox::Message>> messages_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> local_communicators(int ranks) {
  if (ranks < 1) refuse("local_communicators", "ranks must be at least 1, got ", ranks);
  const auto mailbox = std::make_shared<Mailbox>();
  std::vector<std::unique_ptr<Communicator>> result;
  for (int rank = 0; rank < ranks; ++rank)
    result.push_back(std::make_unique<LocalCommunicator>(mailbox, rank, ranks));
  return result;
}

}  // namespace saccade::distributed
