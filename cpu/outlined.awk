# Reads a disassembly (`objdump -d -C --no-show-raw-insn`). Prints the functions of the crates here
# that call a vector instruction as a function, each with the number of such calls: in a kernel, a
# part of it, usually a closure, was compiled for the least instruction set. Exits with 1 if there
# are any.
/^[0-9a-f]+ <.*>:$/ { name = substr($0, index($0, "<") + 1); name = substr(name, 1, length(name) - 2); next }
/\tcall / && /core::core_arch::x86::(avx|fma)/ && name ~ /^<?lra_/ { calls[name]++ }
END {
    for (name in calls) { print calls[name], name; found = 1 }
    exit found
}
