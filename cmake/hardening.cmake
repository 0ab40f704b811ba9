# SACCADE_HARDEN: what makes a fault in memory harder to exploit, in the libraries, the command and the Python modules. The packages
# that script/deb and script/wheel make have it, and script/hardened.sh checks it there.
if(SACCADE_HARDEN)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    message(FATAL_ERROR "SACCADE_HARDEN is for Linux, not for ${CMAKE_SYSTEM_NAME}")
  endif()
  # A macro of the command line, such as Debian's tools set, gives way.
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection)
  add_link_options(LINKER:-z,relro LINKER:-z,now)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    # The linker marks a file for shadow stacks and for checked indirect branches if all of its objects are, and Debian's crti.o is
    # not: it has nothing against shadow stacks, but no landing pad for indirect branches.
    add_compile_options(-fcf-protection=full)
    add_link_options(LINKER:-z,shstk)
  elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    add_compile_options(-mbranch-protection=standard)
  endif()
endif()
