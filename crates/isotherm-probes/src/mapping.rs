//! Which mappings of a process are memory that a survey reads.

use isotherm_core::Mapping;

/// Whether the mapping is memory of the process: not the kernel's own code and data that every process maps. A process
/// may have taken all permissions from memory that it has filled, which stays resident.
pub(crate) fn is_memory(mapping: &Mapping) -> bool {
    !["[vvar", "[vdso]", "[vsyscall]"].iter().any(|name| mapping.name.starts_with(name))
}

/// Whether the mapping is of a file or of shared memory.
pub(crate) fn is_of_a_file(mapping: &Mapping) -> bool {
    mapping.permissions.shared || mapping.name.starts_with('/')
}
