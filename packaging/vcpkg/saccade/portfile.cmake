# An overlay port, which builds the sources around it: vcpkg install saccade --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS feature_options FEATURES
  gpt SACCADE_BUILD_GPT
  io SACCADE_BUILD_IO
  model SACCADE_BUILD_MODEL
  tokenizer SACCADE_TOKENIZER)
if("tokenizer" IN_LIST FEATURES)
  vcpkg_find_acquire_program(PKGCONFIG)
  list(APPEND feature_options "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}")
endif()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS ${feature_options}
  -DSACCADE_BUILD_CLI=OFF -DSACCADE_BUILD_TESTS=OFF -DSACCADE_BUILD_HEATMAP=OFF -DSACCADE_MPI=OFF -DSACCADE_EMULATE_AMX=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/saccade)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
