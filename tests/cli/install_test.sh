#!/bin/bash
# A stranger's first plugin: installs into an empty prefix, builds the example of plugins/README.md out of the tree against
# what was installed and nothing else, with every compiler at hand, and uses it in a recipe. And in-tree plugins are compiled
# with no header of the host in reach.
# usage: install_test.sh SOURCE BUILD WORK
set -euo pipefail
umask 022

source=$1 build=$2 work=$3
rm -rf "$work"
mkdir -p "$work/plugin"
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/install.log"
for file in bin/kitbash lib/kitbash/plugins/libkb_attention_kda.so lib/cmake/kitbash/kitbashConfig.cmake \
  lib/cmake/kitbash/kitbash_add_plugin.cmake lib/cmake/kitbash/plugin.map; do
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

# The two blocks of the README.
awk '/^```cpp/ { on = 1; next } /^```/ { on = 0 } on' "$source/plugins/README.md" >"$work/plugin/swish.cpp"
{
  echo 'cmake_minimum_required(VERSION 3.25)'
  echo 'project(swish LANGUAGES CXX)'
  echo 'find_package(kitbash CONFIG REQUIRED)'
  awk '/^```cmake/ { on = 1; next } /^```/ { on = 0 } on' "$source/plugins/README.md"
} >"$work/plugin/CMakeLists.txt"

compilers=0
for compiler in g++ clang++-14; do
  command -v "$compiler" >/dev/null || continue
  to=$work/$compiler
  cmake -S "$work/plugin" -B "$to" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$to.log"
  cmake --build "$to" >>"$to.log" || { cat "$to.log" >&2; exit 1; }
  # Of the tree's files, only those that were installed.
  if ninja -C "$to" -t deps | grep -F "$source/core"; then
    echo "the plugin was built with headers of the tree" >&2
    exit 1
  fi
  "$prefix/bin/kitbash" components activation --plugin-path "$to" >"$to.components"
  grep -q '^activation  *swish  *activation-swish  *0.1.0  *beta' "$to.components" || { cat "$to.components" >&2; exit 1; }
  "$prefix/bin/kitbash" check "$source/recipes/reference/tiny.toml" --plugin-path "$to" \
    --set 'model.layer.linear.ffn.activation={ use = "swish", beta = 1.5 }'
  compilers=$((compilers + 1))
done
((compilers > 0)) || { echo "no compiler was found" >&2; exit 1; }
echo "installed, built with $compilers compilers, loaded"
