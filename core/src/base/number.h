// number.h: figures as a person reads them, with three significant digits. Machines read --json, which has all digits.
#pragma once
#include <string>

namespace kitbash {

std::string human_count(double v);   // 2779500000000 -> "2.78 T"; below 1000 "812" or "0.25"; steps of 1000: K M B T P
std::string human_bytes(double v);   // 27648 -> "27.6 KB"; steps of 1000: KB MB GB TB PB
std::string human_binary(double v);  // bytes in memory: 13314398618 -> "12.4 GiB"; steps of 1024: KiB MiB GiB TiB PiB

}  // namespace kitbash
