//! Reads the kernel's tables of pages, which are files of 64-bit entries, and the ranges of System RAM.
//!
//! - [`FlagTable`]: the use of each page frame (`/proc/kpageflags`)
//! - [`Pagemap`]: the page frame of each page of a process (`/proc/PID/pagemap`)
//! - [`Table`]: any such file, for example the idle bitmap (`/sys/kernel/mm/page_idle/bitmap`)
//! - [`SystemRam`]: the ranges of memory (`/proc/iomem`)
//! - [`FrameNodes`]: the memory nodes of page frames
//!
//! Every reader takes the directory that stands for `/`, so that tests can use a directory tree of their own.

mod flags;
mod frame_nodes;
mod pagemap;
mod ram;
mod runs;
mod scan;
mod table;

pub use flags::{FlagTable, Flags};
pub use frame_nodes::FrameNodes;
pub use pagemap::{Pagemap, PagemapEntry, SWAP_TYPES, SwapPlace};
pub use ram::{Ram, RamError, SystemRam};
pub use table::{PageBuffer, Table, TableError};
