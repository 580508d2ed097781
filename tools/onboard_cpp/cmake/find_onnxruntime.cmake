# Defines the target trajpred_onboard::onnxruntime if ONNX Runtime is found.
find_path(ONNXRUNTIME_INCLUDE onnxruntime_cxx_api.h
  HINTS "${ONNXRUNTIME_ROOT}"
  PATH_SUFFIXES include include/onnxruntime include/onnxruntime/core/session onnxruntime)
find_library(ONNXRUNTIME_LIBRARY onnxruntime HINTS "${ONNXRUNTIME_ROOT}" PATH_SUFFIXES lib lib64)
if(ONNXRUNTIME_INCLUDE AND ONNXRUNTIME_LIBRARY AND NOT TARGET trajpred_onboard::onnxruntime)
  add_library(trajpred_onboard::onnxruntime INTERFACE IMPORTED)
  target_include_directories(trajpred_onboard::onnxruntime SYSTEM INTERFACE "${ONNXRUNTIME_INCLUDE}")
  target_link_libraries(trajpred_onboard::onnxruntime INTERFACE "${ONNXRUNTIME_LIBRARY}")
endif()
