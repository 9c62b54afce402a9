# quadriga_cubins: device code without CMake's CUDA language.
#
# Each .cu is compiled device-only to an sm_90a cubin by a custom command, checked for spills
# (CompileCubin.cmake), and put into the program by .incbin in a generated assembly file beside a
# generated table (kernels/cuda/cubins.h). Host code stays with the C++ compiler.
find_program(QUADRIGA_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin)
if(NOT QUADRIGA_NVCC)
    message(FATAL_ERROR "QUADRIGA_CUDA is ON, but nvcc was found neither on the PATH nor under CUDA_HOME "
                        "or /usr/local/cuda: install the CUDA 13 toolkit, set QUADRIGA_NVCC, or use the "
                        "preset cpu, which needs none.")
endif()
execute_process(COMMAND "${QUADRIGA_NVCC}" --version OUTPUT_VARIABLE nvcc_version RESULT_VARIABLE nvcc_result)
if(NOT nvcc_result EQUAL 0 OR NOT nvcc_version MATCHES "release ([0-9]+)\\.([0-9]+)")
    message(FATAL_ERROR "${QUADRIGA_NVCC} --version does not tell a release; is it NVIDIA's compiler?")
endif()
# As the driver counts: 13.0 is 13000.
math(EXPR QUADRIGA_CUDA_VERSION "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
message(STATUS "CUDA ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}: ${QUADRIGA_NVCC}")
enable_language(ASM)

# quadriga_cubins(OUT files.cu...): sets OUT to the generated sources that hold the cubins.
function(quadriga_cubins out)
    set(sources ${ARGN})
    set(assembly "# Made by QuadrigaCuda.cmake.\n.section .rodata\n")
    set(declarations "")
    set(rows "")
    set(cubins "")
    foreach(source IN LISTS sources)
        get_filename_component(stem "${source}" NAME_WE)
        set(cubin "${CMAKE_CURRENT_BINARY_DIR}/${stem}.cubin")
        # The long form: -arch=sm_90a would also run a plain sm_90 pass, which knows no wgmma.
        # No contraction: arithmetic is what is written, as on the CPU.
        add_custom_command(OUTPUT "${cubin}"
            COMMAND "${CMAKE_COMMAND}" "-DLOG=${cubin}.ptxas.txt" -P "${CMAKE_SOURCE_DIR}/cmake/CompileCubin.cmake" --
                    "${QUADRIGA_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++20 --expt-relaxed-constexpr -cubin
                    -gencode arch=compute_90a,code=sm_90a -Xptxas -v -fmad=false -lineinfo
                    -Werror all-warnings -Xcompiler -Wall,-Wextra "-I${CMAKE_SOURCE_DIR}"
                    -MD -MF "${cubin}.d" -MT "${cubin}" -o "${cubin}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
            DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" "${CMAKE_SOURCE_DIR}/cmake/CompileCubin.cmake"
            DEPFILE "${cubin}.d"
            COMMENT "Compiling device code ${source}" VERBATIM)
        list(APPEND cubins "${cubin}")
        string(APPEND assembly ".balign 64\n.global quadriga_cubin_${stem}\nquadriga_cubin_${stem}:\n"
                               ".incbin \"${cubin}\"\n.global quadriga_cubin_${stem}_end\nquadriga_cubin_${stem}_end:\n")
        string(APPEND declarations "extern const std::byte quadriga_cubin_${stem}[];\n"
                                   "extern const std::byte quadriga_cubin_${stem}_end[];\n")
        string(APPEND rows "    {\"${stem}\", {quadriga_cubin_${stem}, quadriga_cubin_${stem}_end}},\n")
    endforeach()
    string(APPEND assembly ".section .note.GNU-stack,\"\",@progbits\n")
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/cubins.S" CONTENT "${assembly}" @ONLY)
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/cubins.cpp" @ONLY CONTENT
"// Made by QuadrigaCuda.cmake.
#include \"kernels/cuda/cubins.h\"

extern \"C\" {
${declarations}}

namespace kernels::cuda {
namespace {

const Cubin kCubins[] = {
${rows}};

}  // namespace

std::span<const Cubin> cubins() {
    return kCubins;
}

}  // namespace kernels::cuda
")
    set_source_files_properties("${CMAKE_CURRENT_BINARY_DIR}/cubins.S" PROPERTIES OBJECT_DEPENDS "${cubins}")
    set(${out} "${CMAKE_CURRENT_BINARY_DIR}/cubins.S" "${CMAKE_CURRENT_BINARY_DIR}/cubins.cpp" PARENT_SCOPE)
endfunction()

# quadriga_carry(TARGETS...): a target cuda-carry that puts the programs, stripped, and the shared
# libraries a bare machine may lack into <build>/carry. Where nothing else needs it the C++ library
# is linked statically; the programs look for the rest beside themselves.
function(quadriga_carry)
    set(folder "${CMAKE_BINARY_DIR}/carry")
    set(commands COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}")
    foreach(target IN LISTS ARGN)
        # The three that serve use libraries which bring the C++ library along.
        if(NOT target MATCHES "^quadriga(-router|-replica)?$")
            target_link_options(${target} PRIVATE -static-libstdc++)
        endif()
        set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN")
        list(APPEND commands COMMAND "${CMAKE_STRIP}" -o "${folder}/${target}" "$<TARGET_FILE:${target}>")
    endforeach()
    foreach(library libhwy.so.1 libutf8proc.so.2 libspdlog.so.1.10 libfmt.so.9 libprometheus-cpp-core.so.1.0
            libtomlplusplus.so.3
            libcrypto.so.3 libssl.so.3 libstdc++.so.6)
        find_file(QUADRIGA_CARRY_${library} ${library} PATHS "${hwy_LIBDIR}" "${utf8proc_LIBDIR}" NO_CACHE)
        if(QUADRIGA_CARRY_${library})
            list(APPEND commands COMMAND "${CMAKE_COMMAND}" -E copy "${QUADRIGA_CARRY_${library}}" "${folder}/${library}")
        endif()
    endforeach()
    add_custom_target(cuda-carry ${commands} DEPENDS ${ARGN} VERBATIM)
endfunction()
