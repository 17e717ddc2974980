//! Which code mapped memory: calls that map memory, and the call stacks from which they were made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{AddrRange, TargetId};

/// One function in a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The name of the function. `None` if no symbol is known.
    pub function: Option<Arc<str>>,
    /// The file that holds the code. `None` for code that no file holds, such as that of a just-in-time compiler.
    pub module: Option<Arc<str>>,
    /// The distance of the call in bytes: from the start of the function, or without one from the start of the file, or
    /// without both from address 0.
    pub offset: u64,
}

/// A call stack. The innermost function comes first.
pub type CallStack = Arc<[StackFrame]>;

/// The number of a call stack, which is unique in a run.
pub type StackId = u32;

/// What mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappingCall {
    /// mmap(2).
    Mmap,
    /// mremap(2).
    Mremap,
    /// brk(2).
    Brk,
    /// execve(2), which replaces all memory of the process.
    Exec,
}

impl MappingCall {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mmap, Self::Mremap, Self::Brk, Self::Exec];

    /// The name of the system call.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::Mremap => "mremap",
            Self::Brk => "brk",
            Self::Exec => "execve",
        }
    }
}

impl fmt::Display for MappingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A call that mapped memory. The memory belongs to it until a later call maps memory at the same addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// When the call returned, since the start of the run; zero if that was before it.
    pub time: Duration,
    /// The process that made the call.
    pub target: TargetId,
    /// What mapped the memory.
    pub call: MappingCall,
    /// What was mapped. For execve, all addresses.
    pub range: AddrRange,
    /// From where the call was made. `None` if that is not known, and for execve.
    pub stack: Option<StackId>,
}

/// Calls that mapped memory, with those of their stacks that are new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// When the calls were read, since the start of the run.
    pub time: Duration,
    /// Stacks that no batch before has, with their numbers.
    pub stacks: Vec<(StackId, CallStack)>,
    /// The calls, in the order of time.
    pub calls: Vec<Allocation>,
    /// How many calls were lost since the batch before, because there were too many at a time.
    pub lost: u64,
}

impl Allocations {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty() && self.calls.is_empty() && self.lost == 0
    }
}
