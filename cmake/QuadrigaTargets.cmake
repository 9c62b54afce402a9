# quadriga_library, quadriga_program and quadriga_test: a target with the house's warnings and includes.
set(QUADRIGA_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
    -Wnon-virtual-dtor -Woverloaded-virtual -Wnull-dereference -Wno-missing-field-initializers)
if(QUADRIGA_WERROR)
    list(APPEND QUADRIGA_WARNINGS -Werror)
endif()

function(quadriga_settings target)
    target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}")
    target_compile_options(${target} PRIVATE ${QUADRIGA_WARNINGS})
    if(QUADRIGA_SANITIZE)
        target_compile_options(${target} PRIVATE -fsanitize=${QUADRIGA_SANITIZE}
                               -fno-omit-frame-pointer -fno-sanitize-recover=all
                               # GCC 12 reports false positives of these under -fsanitize.
                               $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -Wno-null-dereference)
        target_link_options(${target} PRIVATE -fsanitize=${QUADRIGA_SANITIZE})
    endif()
endfunction()

# quadriga_library(NAME SOURCES... [PUBLIC libs...] [PRIVATE libs...])
function(quadriga_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
    quadriga_settings(${name})
endfunction()

# quadriga_program(NAME SOURCES... LIBS...): the executable lands in <build>/bin.
function(quadriga_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_LIBS})
    quadriga_settings(${name})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
endfunction()

# quadriga_test(NAME SOURCES... LIBS... LABEL unit|kernel|integration|e2e TIMEOUT seconds)
# One GoogleTest program, one CTest entry.
function(quadriga_test name)
    cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LIBS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
    quadriga_settings(${name})
    target_compile_definitions(${name} PRIVATE QUADRIGA_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                               QUADRIGA_BINARY_DIR="${CMAKE_BINARY_DIR}")
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT "${ARG_TIMEOUT}")
endfunction()
