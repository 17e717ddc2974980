//! The monitor at the heart of isotherm: which memory is accessed how often, at a bounded cost.
//!
//! The method is that of DAMON (SeongJae Park et al., "Profiling Dynamic Data Access Patterns with
//! Controlled Overhead and Quality", Middleware Industry 2019; Linux `Documentation/mm/damon/design.rst`):
//! neighbouring pages of equal access frequency form a region, one page of each region is looked at, and
//! regions are merged and split so that their number stays between two bounds.
//!
//! This crate does no I/O, reads no clock, starts no thread and knows no kernel: whether a page was
//! accessed is an [`AccessProbe`]'s word, what is mapped is an [`AddressSpace`]'s, time and randomness
//! are handed in, and what was found goes to a [`Sink`].

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stderr, clippy::print_stdout)]

mod adjust;
mod areas;
mod attribute_options;
mod attributes;
mod idle;
mod monitor;
mod probe;
mod range;
mod region;
pub mod scheme;
mod sink;
mod snapshot;
mod steady;
mod target;
pub mod units;
mod usage;

pub use areas::areas;
pub use attribute_options::AttributeOptions;
pub use attributes::{Attributes, AttributesError};
pub use idle::{IdleTally, MOST_INTERVALS, PageState};
pub use monitor::{Monitor, MonitorError, Next};
pub use probe::{AccessProbe, Granularity, Observation, Sample};
pub use range::{AddrRange, PAGE_SIZE};
pub use region::Region;
pub use sink::{Round, Sink};
pub use snapshot::{RegionSnapshot, Snapshot, TargetSnapshot};
pub use target::{AddressSpace, CgroupId, Layout, Mapping, NodeId, Permissions, ProcessId, TargetId, TargetSpace};
pub use usage::{MemoryUse, SystemMemory};

/// An error of a probe, an address space or a sink, whose kinds this crate cannot know.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
