// lanes_setup.h: included before Highway by each file of lanes: one build for AVX-512, one for AVX2, one for what the
// compiler assumes. The others would cost compile time for machines that nobody trains on.
#pragma once
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
