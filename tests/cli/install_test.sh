#!/bin/bash
# A stranger's first plugin: installs into an empty prefix, takes the two files of plugins/README.md and runs its commands out of
# the tree, against what was installed and nothing else, with every compiler at hand, and uses the plugin in a recipe and alone; where
# there is nvcc, also kernels for CUDA. And in-tree plugins are compiled with no header of the host in reach.
# usage: install_test.sh SOURCE BUILD WORK
set -euo pipefail
umask 022

source=$1 build=$2 work=$3
rm -rf "$work"
mkdir -p "$work/plugin"
prefix=$work/home/kitbash
cmake --install "$build" --prefix "$prefix" >"$work/install.log"
for file in bin/kitbash lib/kitbash/plugins/libkb_attention_kda.so lib/cmake/kitbash/kitbashConfig.cmake \
  lib/cmake/kitbash/kitbash_add_plugin.cmake lib/cmake/kitbash/kitbash_cuda.cmake lib/cmake/kitbash/plugin.map; do
  [[ -f $prefix/$file ]] || { echo "$file is not installed" >&2; exit 1; }
done
diff -r "$source/core/include/kitbash" "$prefix/include/kitbash"

# In-tree plugins see the SDK and their own folder, as a stranger's do. What is compiled into a test is none.
commands=$build/compile_commands.json
wrong=$(awk -v src="$source/" -v sdk="$build/sdk/include" '
  /"command":/ { line = $0 }
  /"file":/ {
    n = split($0, q, "\""); file = q[4]
    if (index(file, src "plugins/") != 1 || line ~ /CMakeFiles\/(test|bench)_| -o tests\//) next
    split(substr(file, length(src "plugins/") + 1), part, "/")
    own = src "plugins/" part[1]
    count = split(line, word, " ")
    for (i = 1; i <= count; ++i) {
      at = word[i]
      if (at !~ /^-I/) continue
      sub(/^-I/, "", at)
      if (index(at, src) == 1 && at != sdk && at != own) print file ": " at
    }
  }' "$commands")
[[ -z $wrong ]] || { printf 'a plugin sees more than the SDK:\n%s\n' "$wrong" >&2; exit 1; }

# The blocks of the README, one of each language: two files, and what is typed beside them.
block() { awk -v mark="^\`\`\`$1\$" '$0 ~ mark { on = 1; next } /^```/ { on = 0 } on' "$source/plugins/README.md"; }
block cpp >"$work/plugin/swish.cpp"
block cmake >"$work/plugin/CMakeLists.txt"
block sh >"$work/commands"
grep -q 'CMAKE_PREFIX_PATH=$HOME/kitbash ' "$work/commands" || { echo "the README has another prefix than this test" >&2; exit 1; }
# Two rows of three zeros for each of the probe's tensors.
tensor() { printf '"in.%s":{"dtype":"F32","shape":[2,3],"data_offsets":[%d,%d]}' "$1" $(($2 * 24)) $(($2 * 24 + 24)); }
header="{$(tensor gate 0),$(tensor linear 1),$(tensor up 2)}"
{
  printf "\\x$(printf %02x ${#header})\0\0\0\0\0\0\0%s" "$header"
  head -c 72 /dev/zero
} >"$work/x.safetensors"

export HOME=$work/home CMAKE_GENERATOR=Ninja
unset KITBASH_PLUGIN_PATH XDG_DATA_HOME
compilers=0
for compiler in g++ clang++-14; do
  command -v "$compiler" >/dev/null || continue
  to=$work/plugin/build
  rm -rf "$to"
  (cd "$work/plugin" && CXX=$compiler CXXFLAGS="-Wall -Wextra -Werror" bash -euo pipefail "$work/commands") >"$work/$compiler.log" 2>&1 ||
    { cat "$work/$compiler.log" >&2; exit 1; }
  grep -q '^activation  *swish  *activation-swish  *0.1.0  *beta' "$work/$compiler.log" || { cat "$work/$compiler.log" >&2; exit 1; }
  # Of the tree's files, only those that were installed.
  if ninja -C "$to" -t deps | grep -F "$source/core"; then
    echo "the plugin was built with headers of the tree" >&2
    exit 1
  fi
  "$prefix/bin/kitbash" probe activation.swish --plugin-path "$to" --in "$work/x.safetensors" --out "$work/y.safetensors" --backward
  "$prefix/bin/kitbash" plan "$source/recipes/reference/tiny.toml" --plugin-path "$to" \
    --set 'model.layer.linear.ffn.activation={ use = "swish", beta = 1.5 }' >"$work/plan"
  compilers=$((compilers + 1))
done
((compilers > 0)) || { echo "no compiler was found" >&2; exit 1; }
# As installed by a user: a copy in the folder that is searched anyway.
mkdir -p "$HOME/.local/share/kitbash/plugins"
cp "$work/plugin/build/libkb_activation_swish.so" "$HOME/.local/share/kitbash/plugins/"
"$prefix/bin/kitbash" explain activation.swish >"$work/explain"

# Kernels for CUDA, out of the tree as well.
if [[ -e $prefix/lib/kitbash/plugins/libkb_backend_cuda.so ]]; then
  mkdir "$work/cuda"
  cat >"$work/cuda/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(twice LANGUAGES CXX)
find_package(kitbash CONFIG REQUIRED COMPONENTS cuda)
kitbash_add_cuda_kernels(activation_twice SOURCES plugin.cpp twice.cu)
END
  cat >"$work/cuda/plugin.cpp" <<'END'
#include <cuda_runtime.h>
#include "kitbash/plugin.h"
cudaError_t twice(const float* x, float* y, int64_t n, cudaStream_t stream);
struct Twice {
  static constexpr const char* name = "twice";
  void infer(kb::Infer& s) const { s.like(s.in(0, "x")); }
};
KITBASH_ATTRS(Twice)
struct TwiceCuda {
  using Op = Twice;
  static constexpr const char* name = "twice_cuda";
  static constexpr int device = KB_CUDA;
  static void launch(const kb::Call& c, const Twice&) {
    const auto stream = static_cast<cudaStream_t>(c.c->device->stream);
    if (twice(c.get<float>(0), c.put<float>(0), kb::elements(c.in(0)), stream) != cudaSuccess) kb::fail("twice must launch");
  }
};
KITBASH_PLUGIN("activation-twice-cuda", "0.1.0", "Apache-2.0", kernel<TwiceCuda>())
END
  cat >"$work/cuda/twice.cu" <<'END'
#include <cstdint>
__global__ void kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
cudaError_t twice(const float* x, float* y, int64_t n, cudaStream_t stream) {
  kernel<<<unsigned((n + 255) / 256), 256, 0, stream>>>(x, y, n);
  return cudaGetLastError();
}
END
  to=$work/cuda/build
  { cmake -S "$work/cuda" -B "$to" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release && cmake --build "$to"; } >"$work/cuda.log" 2>&1 ||
    { cat "$work/cuda.log" >&2; exit 1; }
  "$prefix/bin/kitbash" components --plugin-path "$to" >"$work/cuda.components"
  grep -q '^twice  *cuda  *activation-twice-cuda' "$work/cuda.components" || { cat "$work/cuda.components" >&2; exit 1; }
fi
echo "installed, built with $compilers compilers, loaded"
