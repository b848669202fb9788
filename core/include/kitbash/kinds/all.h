// all.h: every kind of component. A kind's header says what it gets, what it returns, and what conformance checks.
#pragma once
#include "kitbash/kinds/activation.h"
#include "kitbash/kinds/attention.h"
#include "kitbash/kinds/decay.h"
#include "kitbash/kinds/ffn.h"
#include "kitbash/kinds/norm.h"
#include "kitbash/kinds/objective.h"
#include "kitbash/kinds/optimizer.h"
#include "kitbash/kinds/residual.h"
#include "kitbash/kinds/router.h"
#include "kitbash/kinds/schedule.h"
#include "kitbash/kinds/sequence.h"
