// Prints the tokens of texts, for compare_tokenizers.py:
//
//     tokenize_lines TOKENIZER.json < TEXTS
//
// Each text is its length as a line of its own, and then its bytes. For each a line is printed: id, begin and end,
// in bytes, of every token.
#include <saccade/tokenizer.h>

#include <cstdio>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("tokenize_lines TOKENIZER.json < TEXTS\n", stderr), 2;
  const auto tokenizer = saccade::Tokenizer::load(argv[1]);
  for (std::string line; std::getline(std::cin, line);) {
    std::string text(std::stoul(line), '\0');
    std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
    for (const saccade::Token& token : tokenizer.encode(text))
      std::printf("%lld %zu %zu ", static_cast<long long>(token.id), token.range.begin, token.range.end);
    std::putchar('\n');
  }
}
