// verify.h: a checkpoint whose every byte has been read and compared.
#pragma once
#include <string>

#include "checkpoint/manifest.h"

namespace kitbash {

// Throws kb::Error naming file and tensor.
Manifest verified_manifest(const std::string& path);

}  // namespace kitbash
