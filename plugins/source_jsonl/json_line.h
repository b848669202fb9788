// json_line.h: finds one string of a JSON object (RFC 8259) without building the rest. Strict about structure; bytes in
// strings that are not UTF-8 pass, since text is bytes here.
#pragma once
#include <string>
#include <string_view>

#include "kitbash/error.h"

class JsonLine {
 public:
  explicit JsonLine(std::string_view line) : s_(line) {}

  // The value of `key` in the object; throws kb::Error that begins with "column N: ". `out` null: only checks.
  void read(std::string_view key, std::string* out) {
    bool found = false;
    std::string name;
    blanks();
    if (peek() != '{') say("a JSON object must begin with '{'");
    ++at_, blanks();
    if (peek() == '}') {
      ++at_;
    } else {
      for (;; ++at_, blanks()) {
        name.clear();
        if (peek() != '"') say("a key in '\"' is due");
        string(&name), blanks();
        if (peek() != ':') say("':' is due after a key");
        ++at_, blanks();
        if (!found && name == key) {
          if (peek() != '"') say(kb::text("'", key, "' must be a string"));
          string(out), found = true;
        } else {
          value(1);
        }
        blanks();
        if (peek() == ',') continue;
        if (peek() != '}') say("',' or '}' is due");
        ++at_;
        break;
      }
    }
    blanks();
    if (at_ < s_.size()) say("nothing must follow the object");
    if (!found) say(kb::text("the object must have the key '", key, "'"));
  }

 private:
  static constexpr int kDeepest = 64;
  int peek() const { return at_ < s_.size() ? static_cast<unsigned char>(s_[at_]) : -1; }
  bool digit() const { return peek() >= '0' && peek() <= '9'; }
  void blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
  }
  [[noreturn]] void say(const std::string& what) const {
    const int c = peek();
    std::string got = "the end of the line";
    if (c >= 0x20 && c < 0x7f)
      got = std::string("'") + char(c) + "'";
    else if (c >= 0)
      got = kb::text("byte ", c);
    kb::fail("column ", at_ + 1, ": ", what, " but got ", got);
  }

  void value(int depth) {
    if (depth > kDeepest) say(kb::text("at most ", kDeepest, " levels are read"));
    const int c = peek();
    if (c == '"') return string(nullptr);
    if (c == '{' || c == '[') {
      const char close = c == '{' ? '}' : ']';
      ++at_, blanks();
      if (peek() == close) return void(++at_);
      for (;; ++at_, blanks()) {
        if (c == '{') {
          if (peek() != '"') say("a key in '\"' is due");
          string(nullptr), blanks();
          if (peek() != ':') say("':' is due after a key");
          ++at_, blanks();
        }
        value(depth + 1), blanks();
        if (peek() == ',') continue;
        if (peek() != close) say(kb::text("',' or '", close, "' is due"));
        return void(++at_);
      }
    }
    for (const std::string_view word : {"true", "false", "null"})
      if (s_.substr(at_, word.size()) == word) return void(at_ += word.size());
    number();
  }
  void number() {
    if (peek() == '-') ++at_;
    if (!digit()) say("a JSON value is due");
    if (peek() == '0')
      ++at_;
    else
      digits();
    if (peek() == '.') ++at_, digits();
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
  }
  void digits() {
    if (!digit()) say("a digit is due");
    while (digit()) ++at_;
  }
  void string(std::string* out) {
    for (++at_;;) {
      const size_t begin = at_;
      while (peek() >= 0x20 && peek() != '"' && peek() != '\\') ++at_;
      if (out) out->append(s_.substr(begin, at_ - begin));
      const int c = peek();
      if (c == '"') return void(++at_);
      if (c != '\\') say("a string must end with '\"' and hold no control characters");
      ++at_;
      escape(out);
    }
  }
  void escape(std::string* out) {
    static constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
    const size_t i = peek() < 0 ? std::string_view::npos : from.find(char(peek()));
    if (i != std::string_view::npos) {
      ++at_;
      if (out) *out += to[i];
      return;
    }
    if (peek() != 'u') say("an escape must be one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    uint32_t c = unit();
    if (c >= 0xdc00 && c < 0xe000) at_ -= 4, say("half of a surrogate pair must not stand alone");
    if (c >= 0xd800 && c < 0xdc00) {
      if (s_.substr(at_, 2) != "\\u") say("the second half of a surrogate pair is due");
      ++at_;
      const uint32_t low = unit();
      if (low < 0xdc00 || low >= 0xe000) at_ -= 4, say("the second half of a surrogate pair is due");
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (!out) return;
    const auto put = [&](uint32_t b) { *out += char(b); };
    if (c < 0x80)
      put(c);
    else if (c < 0x800)
      put(0xc0 | c >> 6), put(0x80 | (c & 63));
    else if (c < 0x10000)
      put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    else
      put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  }
  uint32_t unit() {  // at 'u': four hexadecimal digits follow
    uint32_t v = 0;
    for (int i = 0; i < 4; ++i) {
      ++at_;
      const int c = peek(), l = c | 32;
      if (c >= '0' && c <= '9')
        v = v * 16 + uint32_t(c - '0');
      else if (l >= 'a' && l <= 'f')
        v = v * 16 + uint32_t(l - 'a' + 10);
      else
        say("four hexadecimal digits are due after \\u");
    }
    ++at_;
    return v;
  }

  std::string_view s_;
  size_t at_ = 0;
};
