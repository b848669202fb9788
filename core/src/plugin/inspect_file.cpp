#include "plugin/inspect_file.h"

#include "kitbash/error.h"
#include "plugin/elf_section.h"
#include "plugin/trust.h"

namespace kitbash {

Problems Inspection::all() const {
  Problems p = broken;
  p.insert(p.end(), incompatible.begin(), incompatible.end());
  return p;
}

Inspection inspect_file(const std::string& path) {
  Inspection r;
  r.broken = distrust(path);
  ManifestSection section = read_manifest_section(path);
  if (!section.problem.empty()) {
    r.broken.push_back(section.problem);
    return r;
  }
  try {
    r.info = parse_manifest(section.bytes, path);
  } catch (const kb::Error& e) {
    r.broken.push_back(std::string(e.what()).substr(path.size() + 1));  // refusal() puts the path back
    return r;
  }
  r.incompatible = abi_problems(r.info);
  return r;
}

}  // namespace kitbash
