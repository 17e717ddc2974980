//! The kernel's tables of pages, as files of 64-bit entries: what a page is (`/proc/kpageflags`), where it is
//! (`/proc/PID/pagemap`), whether it is idle (`/sys/kernel/mm/page_idle/bitmap`); and where memory is at all (`/proc/iomem`).
//!
//! Every reader takes the directory that stands for `/`, so that tests run on a made tree.

mod flags;
mod pagemap;
mod ram;
mod runs;
mod table;

pub use flags::{FlagTable, Flags};
pub use pagemap::{Pagemap, PagemapEntry};
pub use ram::{Ram, RamError, SystemRam};
pub use table::{Room, Table, TableError};
