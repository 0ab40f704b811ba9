# Writes the list of what a DLL exports: our names in its objects, without those of the kernels. Objects for Windows do not say
# which names are visible.
#   cmake -D NM=... -D OBJECTS=FILE -D DLL=NAME -D RESULT=FILE -P export_names.cmake
file(READ ${OBJECTS} objects)  # a list
execute_process(COMMAND ${NM} --extern-only --defined-only --format=posix ${objects} COMMAND_ERROR_IS_FATAL ANY
  OUTPUT_VARIABLE lines)
string(REGEX MATCHALL "\n(saccade_[a-z0-9_]+|_ZNK?7saccade[A-Za-z0-9_]*|_ZT[VI]N7saccade[A-Za-z0-9_]*) [TDRB] " names "${lines}")
list(TRANSFORM names REPLACE "^\n| .*" "")
list(FILTER names EXCLUDE REGEX "7saccade3cpu")
list(REMOVE_DUPLICATES names)
list(SORT names)
list(JOIN names "\n" names)
file(WRITE ${RESULT} "LIBRARY ${DLL}\nEXPORTS\n${names}\n")
