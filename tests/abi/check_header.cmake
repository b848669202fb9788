# Whether each SDK header compiles alone: cmake -DCOMPILER=<c++> -DINCLUDE=<folder> -P check_header.cmake. abi.h is C99 too.
file(GLOB_RECURSE headers RELATIVE ${INCLUDE} ${INCLUDE}/kitbash/*.h)
set(flags -Wall -Wextra -Werror -fsyntax-only -I${INCLUDE})
foreach(header ${headers})
  execute_process(COMMAND ${COMPILER} -std=c++20 ${flags} -include ${header} -x c++ /dev/null RESULT_VARIABLE rc
                  ERROR_VARIABLE text)
  if(rc)
    message(SEND_ERROR "${header} does not compile alone with ${COMPILER}:\n${text}")
  endif()
endforeach()
execute_process(COMMAND ${COMPILER} -std=c99 -pedantic ${flags} -include kitbash/abi.h -x c /dev/null RESULT_VARIABLE rc
                ERROR_VARIABLE text)
if(rc)
  message(SEND_ERROR "kitbash/abi.h is not C99 for ${COMPILER}:\n${text}")
endif()
