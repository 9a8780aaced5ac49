#!/bin/bash
# Makes sure that C and C++ code that includes Python.h compiles for an environment: compiler.sh VENV
# torch.compile writes C++ on a processor, and Triton C on a GPU; both need it at run time. Where nothing is missing, nothing
# is done. As root the packages are installed; otherwise a toolchain is unpacked into VENV/toolchain, with wrappers in VENV/bin.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$1" && pwd)
python="$venv/bin/python"
export PATH="$venv/bin:$PATH"

# Whether `gcc` and `g++` turn a file that includes Python.h into a shared library with OpenMP, and precompile a header.
compiles() {
    local folder include
    folder=$(mktemp -d)
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    printf '#include <Python.h>\n#include <omp.h>\nint threads(void) { return omp_get_max_threads(); }\n' >"$folder/probe.c"
    cp "$folder/probe.c" "$folder/probe.cpp"
    printf '#include <vector>\nstd::vector<int> list;\n' >>"$folder/probe.cpp"
    gcc -shared -fPIC -fopenmp -I"$include" "$folder/probe.c" -o "$folder/probe-c.so" 2>"$folder/log" &&
        g++ -shared -fPIC -fopenmp -I"$include" "$folder/probe.cpp" -o "$folder/probe-cpp.so" 2>>"$folder/log" &&
        g++ -x c++-header -fPIC -I"$include" "$folder/probe.cpp" -o "$folder/probe.gch" 2>>"$folder/log"
    local result=$?
    rm -rf "$folder"
    return $result
}

# A wrapper that runs the unpacked compiler on its own libraries, against its own headers. The path for the run is given by
# LD_RUN_PATH, since an option for the linker would spoil the precompiled headers that torch asks for.
wrapper() {
    local name=$1 program=$2
    cat >"$venv/bin/$name" <<END
#!/bin/bash
t="\$(cd "\$(dirname "\$(readlink -f "\$0")")/../toolchain" && pwd)"
export LD_LIBRARY_PATH="\$t/private" LD_RUN_PATH="\$t/private" PATH="\$t/usr/bin:\$PATH"
exec "\$t/usr/bin/$program" --sysroot="\$t" -B"\$t/usr/bin" -isystem "\$t/usr/include/$version" "\$@"
END
    chmod +x "$venv/bin/$name"
}

unpack_toolchain() {
    local toolchain="$venv/toolchain" program
    rm -rf "$toolchain"
    "$here/apt_fetch.sh" "$toolchain" gcc g++ "lib$version-dev"
    # Where /lib is a link into /usr, the packages rely on it.
    for name in lib lib64; do
        [ -e "$toolchain/$name" ] || ln -s "usr/$name" "$toolchain/$name"
    done
    # The compiler's own libraries, without the C library: that one must be the one its loader came with.
    mkdir "$toolchain/private"
    for name in isl mpc mpfr gmp zstd z bfd opcodes ctf sframe gprofng jansson stdc++ gcc_s gomp; do
        find "$toolchain"/usr/lib/*-linux-gnu "$toolchain"/lib/*-linux-gnu -maxdepth 1 -name "lib$name[-.]*so*" \
            -exec cp -P -n {} "$toolchain/private/" \;
    done
    for name in gcc g++; do
        program=$(basename "$(readlink -f "$toolchain/usr/bin/$name")")
        wrapper "$name" "$program"
    done
    ln -sf gcc "$venv/bin/cc"
    ln -sf g++ "$venv/bin/c++"
}

version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
compiles && exit 0
"$here/apt_install.sh" gcc g++ libc6-dev "lib$version-dev" && compiles && exit 0
echo "no compiler here and no rights to install one: unpacking one into $1/toolchain" >&2
command -v apt-get >/dev/null && unpack_toolchain >&2 && compiles && exit 0
echo "vLLM needs g++ and Python.h at run time: install them (apt-get install g++ lib$version-dev)" >&2
exit 1
