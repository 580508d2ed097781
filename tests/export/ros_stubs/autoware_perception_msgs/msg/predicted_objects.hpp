#pragma once

#include "messages.hpp"
