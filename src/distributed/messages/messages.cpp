#include "distributed/messages/messages.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/memory.h"

namespace saccade::distributed {

Buffer make_buffer(std::size_t bytes) {
  auto memory = std::make_shared<Memory>(std::max<std::size_t>(bytes, 1));
  return {memory, memory->data()};
}

Parcel::Parcel(DType dtype, const Shape& shape)
    : memory(make_buffer(static_cast<std::size_t>(element_count(shape)) * size_of(dtype))),
      numbers(memory.get(), dtype, shape) {}

Messages::Messages(Communicator& communicator, std::string_view function)
    : communicator_(communicator), function_(function), is_open_(communicator.size() > 1) {
  if (!communicator.failure().empty())
    throw CommunicationError("[" + std::string(function) +
                             "] the communicator failed before: " + communicator.failure());
}

Messages::~Messages() {
  if (!is_open_) return;
  try {
    communicator_.fail("an exception ended an earlier call on this rank before all messages were exchanged", {});
  } catch (const std::bad_alloc&) {
    communicator_.fail("(text lost)", {});  // short strings need no memory
  }
}

void Messages::fail(const std::string& why) {
  const std::string text = "[" + std::string(function_) + "] rank " + std::to_string(rank()) + ", " + why;
  communicator_.fail(text, {});
  throw CommunicationError(text);
}

void Messages::send(Batch& batch, int to, const TensorView& rows) {
  if (rows.size() == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(rows.size()) * size_of(rows.dtype);
  const Buffer copy_of_rows = make_buffer(bytes);
  copy(rows, MutableTensorView(copy_of_rows.get(), rows.dtype, rows.dims()));
  batch.memory.push_back(copy_of_rows);
  const std::size_t most = communicator_.most_bytes();
  for (std::size_t at = 0; at < bytes; at += most)
    batch.requests.push_back(communicator_.send(to, copy_of_rows.get() + at, std::min(bytes - at, most)));
}

void Messages::receive(Batch& batch, int from, const MutableTensorView& rows, const Buffer& memory) {
  if (rows.size() == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(rows.size()) * size_of(rows.dtype);
  auto* const to = static_cast<std::byte*>(rows.mutable_data());
  batch.memory.push_back(memory);
  const std::size_t most = communicator_.most_bytes();
  for (std::size_t at = 0; at < bytes; at += most)
    batch.requests.push_back(communicator_.receive(from, to + at, std::min(bytes - at, most)));
}

void Messages::wait(Batch& batch, const std::string& what) {
  try {
    distributed::wait(communicator_, batch.requests, std::chrono::steady_clock::now() + communicator_.timeout());
  } catch (const CommunicationError& error) {
    throw CommunicationError("waiting for " + what + ": " + error.what());
  }
  batch.requests.clear();
  batch.memory.clear();
}

std::vector<std::byte> Messages::all_gather(std::span<const std::byte> own, const std::string& what) {
  std::shared_ptr<std::vector<std::byte>> all;
  guard([&] {
    all = std::make_shared<std::vector<std::byte>>(own.size() * static_cast<std::size_t>(size()));
    Batch batch;
    batch.memory.push_back(all);
    try {
      communicator_.all_gather(own.data(), all->data(), own.size(),
                               std::chrono::steady_clock::now() + communicator_.timeout());
    } catch (const CommunicationError& error) {
      throw CommunicationError("waiting for " + what + ": " + error.what());
    }
    batch.memory.clear();
  });
  return std::move(*all);
}

}  // namespace saccade::distributed
