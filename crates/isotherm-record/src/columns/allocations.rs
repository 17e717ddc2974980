//! The columns of calls that mapped memory.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::Id;
use crate::column::Column;
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

table! {
    /// Calls that mapped memory.
    pub(crate) struct Allocations, AllocationsBuilder, AllocationsReader {
        /// when the calls were read, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the stacks that no row before has
        "stacks" => stacks: Vec<Stack>,
        /// the calls, in the order of time
        "calls" => calls: Vec<Call>,
        /// how many calls were lost since the row before of this kind, because there were too many at a time
        "lost" => lost: u64,
    }
}

table! {
    /// A call stack.
    pub(crate) struct Stack, StackBuilder, StackReader {
        /// the number of the stack, by which calls refer to it
        "stack" => stack: u32,
        /// the functions, the innermost first
        "frames" => frames: Vec<Frame>,
    }
}

table! {
    /// A function in a call stack.
    pub(crate) struct Frame, FrameBuilder, FrameReader {
        /// the name of the function; null if it is not known
        "function" => function: Option<Arc<str>>,
        /// the file that holds the code; null for code that no file holds
        "module" => module: Option<Arc<str>>,
        /// the distance of the call in bytes: from the start of the function, or without one from the start of the
        /// file, or without both from address 0
        "offset" => offset: u64,
    }
}

table! {
    /// A call that mapped memory.
    pub(crate) struct Call, CallBuilder, CallReader {
        /// when the call returned, in nanoseconds since the start of the run; 0 if that was before it
        "time_ns" => time_ns: u64,
        /// the process that made the call
        "id" => id: Id,
        /// the system call: `mmap`, `mremap` or `brk`; or `execve`, after which nothing of what was mapped before is
        /// left
        "call" => call: Arc<str>,
        /// the first address that was mapped
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// the number of the stack of the call; null if it is not known, and for `execve`
        "stack" => stack: Option<u32>,
    }
}

impl Allocations {
    /// About how many bytes it takes, uncompressed.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let frame = |frame: &Frame| 24 + text(&frame.function) + text(&frame.module);
        let stack = |stack: &Stack| 8 + stack.frames.iter().map(frame).sum::<usize>();
        64 + self.calls.len() * 64 + self.stacks.iter().map(stack).sum::<usize>()
    }
}
