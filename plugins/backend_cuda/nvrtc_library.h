// nvrtc_library.h: the run-time compiler of CUDA C, loaded when it is there. The program does not depend on it.
#pragma once
#include <string>
#include <vector>

namespace kb::cuda {

// Products and sums stay apart, as they are in the kernels of single nodes.
inline constexpr const char* nvrtc_options[] = {"--std=c++17", "--fmad=false"};

// "" if it can be used, else the sentence that says why not.
const std::string& nvrtc_missing();
std::string nvrtc_version();  // "13.0"
// Machine code for sm_<arch>. Throws with the compiler's log.
std::vector<char> nvrtc_compile(const std::string& source, uint32_t arch);

}  // namespace kb::cuda
