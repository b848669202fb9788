#include "plugin/load/library.h"

#include <vector>  // before Boost.DLL 1.74, which needs it and does not include it

#define BOOST_DLL_USE_STD_FS
#include <cxxabi.h>

#include <boost/dll/shared_library.hpp>
#include <cstdlib>

#include "kitbash/error.h"

namespace kitbash {
namespace {

// The reason of the loader, out of Boost's "...load() failed (dlerror system message: REASON): Bad file descriptor".
std::string loader_reason(const std::string& message) {
  const std::string mark = "dlerror system message: ";
  const size_t begin = message.find(mark);
  if (begin == std::string::npos) return message;
  const size_t end = message.rfind("): ");
  return message.substr(begin + mark.size(), end == std::string::npos ? end : end - begin - mark.size());
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  char* s = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  const std::string out = s ? s : symbol;
  std::free(s);
  return out;
}

std::string explain(const std::string& path, std::string reason) {
  if (reason.compare(0, path.size() + 2, path + ": ") == 0) reason.erase(0, path.size() + 2);
  const std::string undefined = "undefined symbol: ";
  if (reason.compare(0, undefined.size(), undefined) == 0) {
    const std::string symbol = reason.substr(undefined.size(), reason.find(',') - undefined.size());
    return kb::text("cannot load: undefined symbol '", demangled(symbol),
                    "'. Link what defines it into the plugin; kitbash_add_plugin() finds this at link time");
  }
  const size_t absent = reason.find(": cannot open shared object file");
  if (absent != std::string::npos)
    return kb::text("cannot load: it needs the library '", reason.substr(0, absent),
                    "', which is not found. Install it, or link it statically into the plugin (ldd '", path,
                    "' lists all that it needs)");
  if (reason.find("' not found (required by") != std::string::npos)
    return kb::text("cannot load: ", reason, ". Build it on this system, or on an older one");
  return "cannot load: " + reason;
}

}  // namespace

std::shared_ptr<Library> open_library(const std::string& path) {
  struct Kept {
    std::vector<boost::dll::shared_library> handles;
    std::vector<std::shared_ptr<Library>> libraries;
  };
  static Kept& kept = *new Kept;  // no destructor: libraries outlive everything
  boost::dll::shared_library lib;
  try {
    lib.load(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::exception& e) {
    throw kb::Error(explain(path, loader_reason(e.what())));
  }
  for (const auto& l : kept.libraries)
    if (l->native == lib.native()) return l;  // `lib` gives back its own count only
  auto l = std::make_shared<Library>();
  l->path = path;
  l->native = lib.native();
  if (lib.has("kitbash_plugin_v1")) l->entry = &lib.get<const kb_plugin*(void)>("kitbash_plugin_v1");
  kept.handles.push_back(std::move(lib));
  kept.libraries.push_back(l);
  return l;
}

}  // namespace kitbash
