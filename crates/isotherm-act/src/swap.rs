//! Whether there is a place in swap for memory that no file on a disk backs.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::Mapping;
use isotherm_kernel::system_memory;

/// For how long a reading counts.
const VALID: Duration = Duration::from_secs(1);

/// The names of mappings of shared memory without a file on a disk begin so. `/dev/zero` stands for shared anonymous
/// memory.
const SHARED_MEMORY: [&str; 4] = ["/memfd:", "/dev/zero", "/dev/shm/", "/SYSV"];

/// The last reading of the free swap.
#[derive(Debug, Default)]
pub(super) struct Swap {
    read: Option<(Instant, bool)>,
}

impl Swap {
    /// Whether swap is free, read once a second. If it cannot be read, it counts as free. `root` is the directory that
    /// stands for `/`.
    pub(super) fn is_free(&mut self, root: &Path) -> bool {
        match self.read {
            Some((at, is_free)) if at.elapsed() < VALID => is_free,
            _ => {
                let is_free = system_memory(root).map_or(true, |memory| memory.swap_free > 0);
                self.read = Some((Instant::now(), is_free));
                is_free
            }
        }
    }
}

/// Whether the memory of this mapping can be freed only if there is swap for it, as its name says. A mapping of a file
/// may have changed private pages, which need swap as well.
pub(super) fn needs_swap(mapping: &Mapping) -> bool {
    mapping.name.is_empty()
        || mapping.name.starts_with('[')
        || SHARED_MEMORY.iter().any(|name| mapping.name.starts_with(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::AddrRange;

    use super::*;

    #[test]
    fn memory_without_a_file_on_a_disk_needs_swap() {
        let named = |name: &str| Mapping { name: name.into(), ..Mapping::anonymous(AddrRange::new(0, 4096).unwrap()) };
        for name in ["", "[heap]", "[anon:cache]", "/memfd:jit (deleted)", "/dev/zero (deleted)", "/SYSV00000000"] {
            assert!(needs_swap(&named(name)), "{name}");
        }
        assert!(!needs_swap(&named("/usr/lib/libc.so.6")) && !needs_swap(&named("/data/index (deleted)")));
    }

    #[test]
    fn swap_is_free_if_the_kernel_says_so() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        assert!(Swap::default().is_free(root.path()), "it cannot be read");
        let own = std::fs::read_to_string("/proc/meminfo").unwrap();
        for free in [0, 64] {
            let lines = own.lines().map(|line| match line.split_once(':') {
                Some(("SwapFree", _)) => format!("SwapFree: {free} kB\n"),
                _ => format!("{line}\n"),
            });
            std::fs::write(root.path().join("proc/meminfo"), lines.collect::<String>()).unwrap();
            assert_eq!(Swap::default().is_free(root.path()), free > 0);
        }
    }
}
