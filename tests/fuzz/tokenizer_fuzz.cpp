// A tokenizer.json: it is refused by name, or makes tokens of any text.
#include "saccade/tokenizer.h"

#include "fuzz.h"
#include "token_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return saccade::fuzz::run(
      data, size,
      [](auto bytes) {
        const auto tokenizer = saccade::Tokenizer::parse(saccade::fuzz::as_text(bytes));
        for (const std::string_view text : {"", " The cat\tsat\n\n on 3,000  mats.",
                                            "Über Straße 注意力 \xff\x80 é\u0301\U0001F469\u200D\U0001F4BB"})
          saccade::fuzz::check(tokenizer, text);
      },
      "[Tokenizer] ");
}
