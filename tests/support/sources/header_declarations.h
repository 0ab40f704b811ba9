// The declarations of the public headers.
#pragma once

#include <cctype>
#include <istream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace saccade::test {

/// A declaration of a header, as far as it has parameters or is a field.
struct Declaration {
  std::string scope, name;  // the scope is the class, or empty
  bool is_function = false;
  std::vector<std::string> parameters;  // those that its comment must describe: no options
  bool takes_options = false;
  std::string comment;

  /// "Rope::rotate(x, y, start, layout)": the parameters without options.
  std::string signature() const {
    std::string text = (scope.empty() ? name : scope + "::" + name) + "(";
    for (const std::string& parameter : parameters) text += (text.ends_with('(') ? "" : ", ") + parameter;
    return text + ")";
  }
};

inline bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

inline bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

inline std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

/// Where the bracket at `open` is closed, or the end.
inline std::size_t closing(const std::string& text, std::size_t open) {
  const char opened = text[open], closed = opened == '(' ? ')' : opened == '<' ? '>' : opened == '{' ? '}' : ']';
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == opened) ++depth;
    if (text[at] == closed && --depth == 0) return at;
  }
  return text.size();
}

/// The parts between commas outside brackets.
inline std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(' || c == '<' || c == '{' || c == '[') ++depth;
    if (c == ')' || c == '>' || c == '}' || c == ']') --depth;
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// The name that ends a declarator such as "const Tensor& q"; empty if there is a type only.
inline std::string declared_name(std::string text) {
  text = trimmed(text.substr(0, text.find('=')));
  if (text.ends_with(']')) text = trimmed(text.substr(0, text.rfind('[')));
  if (text.ends_with('}')) text = trimmed(text.substr(0, text.find('{')));
  std::size_t begin = text.size();
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  const std::string type = trimmed(text.substr(0, begin));
  const bool has_type = !type.empty() && type != "const" && !type.ends_with("::");
  return has_type ? text.substr(begin) : "";
}

/// A statement without templates in front, attributes and specifiers.
inline std::string bare(std::string text) {
  for (text = trimmed(text);;) {
    if (text.starts_with("template")) {
      text = trimmed(text.substr(closing(text, text.find('<')) + 1));
    } else if (text.starts_with("requires(")) {
      text = trimmed(text.substr(closing(text, text.find('(')) + 1));
    } else if (text.starts_with("[[")) {
      text = trimmed(text.substr(text.find("]]") + 2));
    } else if (text.starts_with("explicit ") || text.starts_with("static ") || text.starts_with("virtual ") ||
               text.starts_with("inline ") || text.starts_with("constexpr ")) {
      text = trimmed(text.substr(text.find(' ')));
    } else {
      return text;
    }
  }
}

/// Where the parameters of a function begin: the first parenthesis behind a name, outside <...>.
inline std::size_t parameters_of(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '<') at = closing(text, at);
    if (at >= text.size() || text[at] == '=') break;
    if (text[at] == '(' && at > 0 && is_word(text[at - 1])) return at;
  }
  return std::string::npos;
}

/// Whether the type of a parameter is a struct of options.
inline bool is_options(const std::string& parameter) {
  const std::size_t end = parameter.find("Options");
  return end != std::string::npos && end > 0 && is_word(parameter[end - 1]) && !is_word(parameter[end + 7]);
}

/// Whether a parameter is what a constructor copies or moves from.
inline bool is_own(const std::string& parameter, const Declaration& function) {
  return function.name == function.scope && has_word(parameter, function.name);
}

/// Reads the declarations of a header.
class Header {
 public:
  explicit Header(std::istream& file) {
    for (std::string line; std::getline(file, line);) read(line);
  }

  const std::vector<Declaration>& declarations() const { return declarations_; }

 private:
  struct Scope {
    std::string name, comment;
    bool is_open = true;       // its declarations are public
    bool is_namespace = true;  // its variables are no fields
    bool is_skipped = false;   // an enum, or the body of a function
  };

  void read(const std::string& line) {
    const std::size_t before = declarations_.size();
    std::string code;
    bool in_text = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '"' && (i == 0 || line[i - 1] != '\\')) in_text = !in_text;
      if (!in_text && line.substr(i, 4) == "///<") {
        behind(before, line.substr(i + 4), trimmed(code).empty());
        break;
      }
      if (!in_text && line.substr(i, 2) == "//") {
        if (line.substr(i, 3) == "///") comment_ += line.substr(i + 3) + "\n";
        break;
      }
      if (!in_text) code += line[i];
      if (!in_text && !trimmed(code).starts_with('#')) accept(line[i]);
    }
    if (!trimmed(code).starts_with('#')) accept('\n');
    if (trimmed(line).empty() && statement_.empty()) comment_.clear();
  }

  /// A comment behind declarations: of those that ended on the line, or of one that goes on.
  void behind(std::size_t before, const std::string& text, bool goes_on) {
    if (goes_on && !declarations_.empty() && statement_.find_first_not_of(" \n") == std::string::npos) {
      declarations_.back().comment += text + "\n";
    } else if (declarations_.size() == before) {
      comment_of_statement_ += text + "\n";
    }
    for (std::size_t i = before; i < declarations_.size(); ++i) declarations_[i].comment += text + "\n";
  }

  void accept(char c) {
    if (scopes_.back().is_skipped) {
      if (c == '{') ++depth_;
      if (c == '}' && --depth_ == 0) scopes_.pop_back();
      return;
    }
    if (trimmed(statement_).empty() && std::isspace(static_cast<unsigned char>(c)) == 0) {
      statement_.clear();
      comment_of_statement_ = std::exchange(comment_, "");
    }
    if (c == '(') ++parentheses_;
    if (c == ')') --parentheses_;
    if (parentheses_ == 0 && c == ';') return end();
    if (parentheses_ == 0 && c == '{') return open();
    if (parentheses_ == 0 && c == '}') return close();
    statement_ += c;
    const std::string label = trimmed(statement_);
    if (label == "public:" || label == "private:" || label == "protected:") {
      scopes_.back().is_open = label == "public:";
      statement_.clear();
    }
  }

  void open() {
    const std::string text = bare(statement_);
    const bool is_class = text.starts_with("struct ") || text.starts_with("class ");
    if (braces_ > 0 || (!is_class && !text.starts_with("namespace") && !text.starts_with("enum") &&
                        parameters_of(text) == std::string::npos)) {  // the braces of a value
      ++braces_;
      statement_ += '{';
      return;
    }
    if (is_class || text.starts_with("namespace")) {
      std::istringstream words(text.substr(0, text.find(':') == text.find("::") ? text.size() : text.find(':')));
      std::string kind, name;
      for (words >> kind; words >> name && (name.starts_with("[[") || name.ends_with("]]"));) {
      }
      const bool is_open =
          scopes_.back().is_open && (text.starts_with("struct ") || (!is_class && name != "detail"));
      scopes_.push_back({is_class ? name : scopes_.back().name, comment_of_statement_, is_open, !is_class});

      statement_.clear();
      return;
    }
    if (!text.starts_with("enum")) declare(text);
    scopes_.push_back({"", "", false, false, true});
    depth_ = 1;
    statement_.clear();
  }

  void close() {
    if (braces_ > 0) {
      --braces_;
      statement_ += '}';
      return;
    }
    scopes_.pop_back();
    statement_.clear();
  }

  void end() {
    if (braces_ == 0) {
      declare(bare(statement_));
      statement_.clear();
    }
  }

  void declare(const std::string& text) {
    const Scope& scope = scopes_.back();
    for (const char* const other :
         {"using ", "friend ", "typedef ", "static_assert", "enum ", "struct ", "class "})
      if (text.starts_with(other)) return;
    if (!scope.is_open || text.empty() || has_word(text, "operator") || text.ends_with("delete") ||
        text.ends_with("default") || has_word(text, "override") || text.find('~') != std::string::npos)
      return;
    const std::size_t open = parameters_of(text);
    Declaration found;
    found.scope = scope.is_namespace ? "" : scope.name;
    found.comment = comment_of_statement_;
    if (open != std::string::npos) {
      std::size_t begin = open;
      while (begin > 0 && is_word(text[begin - 1])) --begin;
      found.name = text.substr(begin, open - begin);
      found.is_function = true;
      for (const std::string& parameter : split(text.substr(open + 1, closing(text, open) - open - 1))) {
        if (is_options(parameter)) found.takes_options = true;
        if (std::string name = declared_name(parameter);
            !name.empty() && !is_options(parameter) && !is_own(parameter, found))
          found.parameters.push_back(std::move(name));
      }
      if (found.name == found.scope) found.comment += scope.comment;
      declarations_.push_back(found);
      return;
    }
    if (scope.is_namespace) return;
    const std::vector<std::string> declarators = split(text);
    for (std::size_t i = 0; i < declarators.size(); ++i) {
      found.name = declared_name((i == 0 ? "" : "T ") + declarators[i]);
      found.comment = comment_of_statement_ + (has_word(scope.comment, found.name) ? scope.comment : "");
      if (!found.name.empty()) declarations_.push_back(found);
    }
  }

  std::vector<Declaration> declarations_;
  std::vector<Scope> scopes_{Scope{}};
  std::string statement_, comment_, comment_of_statement_;
  int parentheses_ = 0, braces_ = 0, depth_ = 0;
};

}  // namespace saccade::test
