// The version of the library, which CMake reads here.
#pragma once

#define TRAJPRED_ONBOARD_VERSION_MAJOR 0
#define TRAJPRED_ONBOARD_VERSION_MINOR 1
#define TRAJPRED_ONBOARD_VERSION_PATCH 0
