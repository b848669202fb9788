// error.h: how a plugin says no. fail("must be ", a, " but got ", b) throws kb::Error; guard() is the only place where an
// exception meets the C seam, and turns it into a kb_error.
#pragma once
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>

#include "kitbash/abi.h"

namespace kb {

struct Error : std::runtime_error {
  uint32_t code;
  explicit Error(const std::string& message, uint32_t c = KB_INVALID) : std::runtime_error(message), code(c) {}
};

template <class... A>
std::string text(const A&... parts) {
  std::ostringstream s;
  s.precision(9);
  (s << ... << parts);
  return s.str();
}

template <class... A>
[[noreturn]] void fail(const A&... parts) {
  throw Error(text(parts...));
}

inline int set_error(kb_error* e, uint32_t code, const char* message) noexcept {
  if (e) {
    e->code = code;
    std::snprintf(e->message, sizeof e->message, "%s", message);
  }
  return int(code);
}

// Runs f; `where` names the function in messages about foreign exceptions.
template <class F>
int guard(const char* where, kb_error* e, F&& f) noexcept {
  try {
    f();
    return KB_OK;
  } catch (const Error& x) {
    return set_error(e, x.code, x.what());
  } catch (const std::exception& x) {
    char m[480];
    std::snprintf(m, sizeof m, "%s (thrown in %s)", x.what(), where);
    return set_error(e, KB_INTERNAL, m);
  } catch (...) {
    char m[128];
    std::snprintf(m, sizeof m, "unknown exception in %s", where);
    return set_error(e, KB_INTERNAL, m);
  }
}

}  // namespace kb
