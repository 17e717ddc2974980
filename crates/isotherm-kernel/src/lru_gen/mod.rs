//! The multi-generational LRU, by `/sys/kernel/mm/lru_gen` and `/sys/kernel/debug/lru_gen` (Linux
//! `Documentation/admin-guide/mm/multigen_lru.rst`).
//!
//! The kernel keeps the pages of each cgroup and memory node in *generations*. Aging creates a new youngest generation
//! and puts the pages that were accessed since the last aging into it. For that it walks the page tables of all
//! processes of the cgroup and clears accessed bits. It holds the memory maps of the processes for reading only, so
//! that their page faults go on.
//!
//! Aging leaves the accessed bits of some pages as they are:
//!
//! - pages that are charged to another cgroup, such as those of a library that another service has loaded first, and
//!   pages of other memory nodes;
//! - pages of locked mappings, of mappings with `MADV_RANDOM` or `MADV_SEQUENTIAL`, and pages that are on no list yet;
//! - pages of a process whose memory map cannot be locked at once, and of a process with less than 256 KiB.
//!
//! So the caller reads the page tables after aging to find which pages are clear. The kernel does not flush the TLB: an
//! access by a translation that is cached does not set the bit.

mod generations;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

pub use generations::{Memcg, NodeGenerations, memcg_of};

/// The file that says which components are on, as bits. It is relative to `/`.
pub const ENABLED: &str = "sys/kernel/mm/lru_gen/enabled";

/// The components that are needed: the main switch, and clearing accessed bits in batches, which is done by walking
/// page tables.
const MAIN: u32 = 0x1;
const NEEDED: u32 = MAIN | 0x2;

/// The inode number of the first cgroup namespace. The kernel names cgroups as that namespace does.
const FIRST_CGROUP_NAMESPACE: &str = "cgroup:[4026531835]";

/// How often a memcg that the kernel has aged by itself meanwhile is tried again.
const ATTEMPTS: u32 = 3;

/// Why the multi-generational LRU cannot be asked to age.
#[derive(Debug, Error)]
pub enum LruGenError {
    /// The kernel has none.
    #[error("the kernel has no multi-generational LRU: there is no {path} (Linux 6.1 or later with CONFIG_LRU_GEN)")]
    Missing {
        /// The file that does not exist.
        path: PathBuf,
    },
    /// It is turned off, or a part that is needed is.
    #[error(
        "the multi-generational LRU is off: {path} is {value}, and the bits 0x1 and 0x2 are needed (an administrator \
         turns it on with `echo y > {path}`, which changes how the whole machine reclaims memory)"
    )]
    Off {
        /// The file that says so.
        path: PathBuf,
        /// What it says.
        value: String,
    },
    /// The working set is protected by age, and aging would make all memory look young.
    #[error(
        "{path} is {min_ttl_ms}: the kernel protects memory that was used within this many milliseconds, and if \
         isotherm aged the generations, it would protect all memory and kill processes when memory is short"
    )]
    Protected {
        /// The file that says so.
        path: PathBuf,
        /// The time.
        min_ttl_ms: u64,
    },
    /// This process sees other paths of cgroups than the kernel lists.
    #[error("this process is in a cgroup namespace ({path} is {found}), so that paths of cgroups cannot be compared")]
    Namespace {
        /// The link that names the namespace.
        path: PathBuf,
        /// The namespace.
        found: String,
    },
    /// A file cannot be read.
    #[error("{path} cannot be read (is debugfs mounted, and is this root?)")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The file has another format than is documented.
    #[error("{path} has a line that is not understood: {line:?}")]
    Format {
        /// The file.
        path: PathBuf,
        /// The line.
        line: String,
    },
    /// The kernel has refused to age a memcg.
    #[error("{path} refused `{command}`")]
    Refused {
        /// The file.
        path: PathBuf,
        /// What was written.
        command: String,
        /// The error.
        source: std::io::Error,
    },
    /// The kernel lists no such memcg.
    #[error("{path} has no memcg {id}: the cgroup was removed")]
    Gone {
        /// The file.
        path: PathBuf,
        /// The ID of the memcg.
        id: u64,
    },
}

/// Whether the kernel keeps generations of pages, in place of active and inactive ones. `root` stands for `/`.
pub fn is_on(root: &Path) -> bool {
    components(root).is_ok_and(|(_, bits)| bits & MAIN != 0)
}

/// What [`ENABLED`] says, and the bits of the components that are on.
fn components(root: &Path) -> Result<(String, u32), LruGenError> {
    let path = root.join(ENABLED);
    let value = match fs::read_to_string(&path) {
        Ok(text) => text.trim().to_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(LruGenError::Missing { path }),
        Err(source) => return Err(LruGenError::Read { path, source }),
    };
    match u32::from_str_radix(value.strip_prefix("0x").unwrap_or(&value), 16) {
        Ok(bits) => Ok((value, bits)),
        Err(_) => Err(LruGenError::Format { path, line: value }),
    }
}

/// The multi-generational LRU of the kernel.
#[derive(Clone, Debug)]
pub struct LruGen {
    root: PathBuf,
}

impl LruGen {
    /// Checks that the multi-generational LRU is on and may be asked to age. `root` stands for `/`. Changes nothing.
    ///
    /// # Errors
    /// If it is missing, off, not accessible, or must not be aged.
    #[allow(clippy::disallowed_methods, reason = "opens /sys/kernel/debug/lru_gen")]
    pub fn open(root: &Path) -> Result<Self, LruGenError> {
        let lru_gen = Self { root: root.into() };
        let (value, bits) = components(root)?;
        if bits & NEEDED != NEEDED {
            return Err(LruGenError::Off { path: root.join(ENABLED), value });
        }
        let path = root.join("sys/kernel/mm/lru_gen/min_ttl_ms");
        // A kernel without the file protects nothing.
        let min_ttl_ms = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        if min_ttl_ms > 0 {
            return Err(LruGenError::Protected { path, min_ttl_ms });
        }
        let path = root.join("proc/self/ns/cgroup");
        // A kernel without namespaces has no link.
        if let Ok(found) = fs::read_link(&path)
            && found.as_os_str() != FIRST_CGROUP_NAMESPACE
        {
            return Err(LruGenError::Namespace { path, found: found.display().to_string() });
        }
        let path = lru_gen.path();
        match fs::File::options().read(true).write(true).open(&path) {
            Ok(_) => Ok(lru_gen),
            Err(source) => Err(LruGenError::Read { path, source }),
        }
    }

    /// Reads the generations of all memcgs.
    ///
    /// # Errors
    /// If the file cannot be read, or is not as documented.
    pub fn memcgs(&self) -> Result<Vec<Memcg>, LruGenError> {
        let path = self.path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(LruGenError::Read { path, source }),
        };
        generations::parse(&text).map_err(|line| LruGenError::Format { path, line: line.into() })
    }

    /// Ages a memcg on all its nodes once: anonymous and file memory, in all page tables.
    ///
    /// If the kernel has aged it by itself since `memcg` was read, which it does when memory is short, its generations
    /// are read again.
    ///
    /// # Errors
    /// If the memcg is gone, or if the kernel refuses.
    #[allow(clippy::disallowed_methods, reason = "writes to /sys/kernel/debug/lru_gen")]
    pub fn age(&self, memcg: &Memcg) -> Result<(), LruGenError> {
        for node in &memcg.nodes {
            let (mut youngest, mut attempts) = (node.youngest, ATTEMPTS);
            loop {
                // 1: anonymous memory too, without swap as well. 1: all page tables, and as often as asked.
                let command = format!("+ {} {} {youngest} 1 1", memcg.id, node.node);
                let written = fs::File::options().write(true).open(self.path());
                match written.and_then(|mut file| file.write_all(command.as_bytes())) {
                    Ok(()) => {}
                    Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) && attempts > 1 => {}
                    Err(source) => return Err(LruGenError::Refused { path: self.path(), command, source }),
                }
                // The kernel does nothing, and says so by no error, if there is a younger generation already.
                let now = self.youngest(memcg.id, node.node)?;
                attempts -= 1;
                if now == youngest + 1 || attempts == 0 {
                    break;
                }
                youngest = now;
            }
        }
        Ok(())
    }

    /// The number of the youngest generation now.
    fn youngest(&self, id: u64, node: u32) -> Result<u64, LruGenError> {
        let memcgs = self.memcgs()?;
        let found = memcgs.iter().find(|memcg| memcg.id == id);
        let found = found.and_then(|memcg| memcg.nodes.iter().find(|known| known.node == node));
        found.map(|node| node.youngest).ok_or_else(|| LruGenError::Gone { path: self.path(), id })
    }

    fn path(&self) -> PathBuf {
        self.root.join("sys/kernel/debug/lru_gen")
    }
}
