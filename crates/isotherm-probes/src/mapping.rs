//! Which mappings of a process are memory that a survey reads.

use isotherm_core::Mapping;

/// Whether the process may access the mapping, and the mapping is memory of the process: not the kernel's own code and
/// data that every process maps.
pub(crate) fn is_memory(mapping: &Mapping) -> bool {
    let of_the_kernel = ["[vvar", "[vdso]", "[vsyscall]"].iter().any(|name| mapping.name.starts_with(name));
    mapping.permissions.any() && !of_the_kernel
}
