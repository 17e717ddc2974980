//! Targets: what is monitored, its identity, and its mappings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{AddrRange, BoxError};

/// The identity of a target.
///
/// It is unique on one machine until the next boot. Together with the boot id of the machine it is unique for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetId {
    /// A process.
    Process(ProcessId),
    /// The physical memory of the machine.
    PhysicalMemory,
    /// The memory that is charged to a cgroup and those below it.
    Cgroup(CgroupId),
    /// The page cache of files. Each file has a place of its own in one space of addresses, and is a mapping there.
    PageCache,
}

/// The identity of a process. The pid alone is not unique, because the system gives it to another process later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// The process id: unique among the processes that live at one time. It is never 0.
    pub pid: u32,
    /// When the process started, counted from the boot of the machine, in the resolution of the system's clock.
    pub start: Duration,
}

/// The number of a cgroup. The system does not give it to another cgroup until the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

/// The number of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl TargetId {
    /// The process with this pid that started at `start`, counted from the boot of the machine.
    pub const fn process(pid: u32, start: Duration) -> Self {
        Self::Process(ProcessId { pid, start })
    }

    /// The pid, if the target is a process.
    pub const fn pid(self) -> Option<u32> {
        match self {
            Self::Process(process) => Some(process.pid),
            Self::PhysicalMemory | Self::Cgroup(_) | Self::PageCache => None,
        }
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => write!(f, "process {}", process.pid),
            Self::PhysicalMemory => f.write_str("physical memory"),
            Self::Cgroup(CgroupId(id)) => write!(f, "cgroup {id}"),
            Self::PageCache => f.write_str("page cache"),
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What reports and patterns call memory without a name.
pub const ANONYMOUS: &str = "anonymous";

/// A part of a target's address space that was mapped as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses; page-aligned.
    pub range: AddrRange,
    /// What may be done with its memory.
    pub permissions: Permissions,
    /// The path of the mapped file, a name in brackets such as `[heap]`, or an empty string for anonymous memory.
    pub name: Arc<str>,
    /// The NUMA node that all of it lies on. `None` where a mapping is not bound to one node, as in a process.
    pub node: Option<NodeId>,
    /// The file that it maps. Shared memory without a name is a file, too. `None` if it maps none, or if that is not
    /// known, as in a recording.
    pub file: Option<MappedFile>,
}

/// Identifies a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The major and the minor number of its device.
    pub device: (u32, u32),
    /// The number of its inode.
    pub inode: u64,
}

/// Which part of a file a mapping maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// The file.
    pub id: FileId,
    /// What is added to an address, modulo 2^64, to get the offset in the file, in bytes. It is the same for all parts
    /// of a mapping.
    pub shift: u64,
}

impl Mapping {
    /// Private anonymous memory that may be read and written.
    pub fn anonymous(range: AddrRange) -> Self {
        Self { range, permissions: Permissions::READ_WRITE, name: Arc::from(""), node: None, file: None }
    }

    /// The name, or [`ANONYMOUS`] if it has none.
    pub fn shown_name(&self) -> &str {
        shown_name(&self.name)
    }

    /// The name, followed by the node if the mapping has one, as reports show it: `System RAM, node 0`.
    pub fn label(&self) -> Arc<str> {
        match self.node {
            Some(node) => format!("{}, node {node}", self.name).into(),
            None => Arc::clone(&self.name),
        }
    }
}

/// The name of a mapping, or [`ANONYMOUS`] if it has none.
pub fn shown_name(name: &str) -> &str {
    if name.is_empty() { ANONYMOUS } else { name }
}

/// What may be done with the memory of a mapping, and whether writes to it are shared with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions {
    /// The memory may be read.
    pub read: bool,
    /// The memory may be written.
    pub write: bool,
    /// The memory may be executed.
    pub execute: bool,
    /// Writes are seen by all that map the same memory. If false, the first write to a page makes a private copy.
    pub shared: bool,
}

impl Permissions {
    /// No access at all.
    pub const NONE: Self = Self { read: false, write: false, execute: false, shared: false };

    /// Read and write, private.
    pub const READ_WRITE: Self = Self { read: true, write: true, execute: false, shared: false };

    /// Whether the memory may be accessed in any way.
    pub const fn any(self) -> bool {
        self.read || self.write || self.execute
    }
}

/// How the mappings of a target become the areas that its regions lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A process: from the first to the last mapping, cut at the two largest gaps.
    Process,
    /// Physical memory: each run of touching mappings is an area.
    Ranges,
}

/// A target and its mappings at one moment.
#[derive(Clone, Debug)]
pub struct TargetSpace {
    /// Which target.
    pub id: TargetId,
    /// How its mappings become areas.
    pub layout: Layout,
    /// Its mappings, sorted and disjoint.
    pub mappings: Arc<[Mapping]>,
}

/// An address space that finds targets by itself takes in at most this many at a time, or fewer
/// ([`AddressSpace::set_most_join`], [`AddressSpace::look_for_new`]). The others join later, so that the time of an
/// update has a bound.
pub const MOST_JOIN: usize = 256;

/// Reads which targets there are and what they have mapped.
pub trait AddressSpace {
    /// All targets that live now, in an order that does not change. A target that has ended is left out; an empty
    /// list ends the run. The monitor calls this at the start, at every update interval, and when a target ends.
    ///
    /// # Errors
    /// Fails only if the run cannot continue. A target that can no longer be read is left out instead.
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError>;

    /// The targets that have appeared since the targets were read or looked for last, at most `most`. Nothing of the
    /// others is read again. A space that does not find targets by itself has none. After the first look, readings may
    /// leave it to looks to find targets.
    ///
    /// # Errors
    /// As [`read_targets`](Self::read_targets).
    fn look_for_new(&mut self, most: usize) -> Result<Vec<TargetSpace>, BoxError> {
        let _ = most;
        Ok(Vec::new())
    }

    /// Lets at most this many targets join at a reading, unless it is the first. A space that does not find targets by
    /// itself ignores this.
    fn set_most_join(&mut self, most: usize) {
        let _ = most;
    }

    /// How many bytes of a target are in memory now, all of its mappings together, without a lock of the target. `None`
    /// if that is not known.
    fn resident(&mut self, target: TargetId) -> Option<u64> {
        let _ = target;
        None
    }

    /// The parties of a target: the numbers of the groups of targets to which it belongs. For each party, surveys and
    /// the panel tell sums in which memory that several of its targets map counts once. Without parties, they tell
    /// those of all targets.
    fn parties(&mut self, target: TargetId) -> Arc<[u32]> {
        let _ = target;
        Arc::default()
    }

    /// Whether the space divides its targets into parties.
    fn has_parties(&self) -> bool {
        false
    }

    /// Whether the run goes on while there is no target, because one may come.
    fn awaits_targets(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_of_one_pid_are_two_targets() {
        let first = TargetId::process(7, Duration::from_secs(1));
        let second = TargetId::process(7, Duration::from_secs(2));
        assert_ne!(first, second);
        assert_eq!((first.pid(), second.pid()), (Some(7), Some(7)));
        assert_eq!(TargetId::PhysicalMemory.pid(), None);
    }

    #[test]
    fn a_label_names_the_node_of_a_mapping_that_has_one() {
        let mut mapping = Mapping { name: "System RAM".into(), ..Mapping::anonymous(AddrRange::new(0, 4096).unwrap()) };
        assert_eq!(&*mapping.label(), "System RAM");
        mapping.node = Some(NodeId(1));
        assert_eq!(&*mapping.label(), "System RAM, node 1");
    }
}
