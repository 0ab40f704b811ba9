// The two text formats of token embeddings, and their shared parts.
#pragma once

#include <string_view>
#include <vector>

#include "io/message.h"
#include "saccade/io.h"

namespace saccade::io {

TokenEmbeddings parse_json(const Origin& origin, std::string_view text);
TokenEmbeddings parse_csv(const Origin& origin, std::string_view text);

}  // namespace saccade::io
