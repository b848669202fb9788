// elf_section.h: the manifest of a shared library, read from the file without running any of its code. The file is
// untrusted: every offset and count is checked against the file's size before it is used.
#pragma once
#include <cstddef>
#include <string>

namespace kitbash {

inline constexpr size_t kMaxManifest = 64 * 1024;  // bytes

struct ManifestSection {
  std::string bytes;    // of the section `kitbash`; empty when there is a problem
  std::string problem;  // a predicate for refusal(); empty when all is well
};
ManifestSection read_manifest_section(const std::string& path);

}  // namespace kitbash
