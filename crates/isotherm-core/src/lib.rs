//! The core of isotherm: finds out which memory is accessed how often, at a bounded cost, and decides what schemes
//! do to it.
//!
//! The method is that of DAMON (SeongJae Park et al., "Profiling Dynamic Data Access Patterns with Controlled
//! Overhead and Quality", Middleware Industry 2019; Linux `Documentation/mm/damon/design.rst`). Neighbouring pages
//! of equal access frequency form a region. One page of a region is sampled and represents the whole region. Regions
//! are merged and split so that their number stays between two bounds.
//!
//! - [`Monitor`] samples the memory of targets. It asks an [`AddressSpace`] what is mapped and an [`AccessProbe`]
//!   which pages were accessed, and hands a [`Snapshot`] of all regions to a [`Sink`] once an aggregation interval.
//! - [`scheme`] holds the schemes: a sink that acts on memory by its access frequency.
//! - [`tiering`] is the policy by which memory moves between fast and slow nodes.
//!
//! This crate does no I/O, reads no clock, starts no thread and knows no operating system. Time and randomness are
//! handed in. The same seed and the same answers of the traits give the same regions and the same actions.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stderr, clippy::print_stdout)]

mod activity;
mod adjust;
mod allocation;
mod areas;
mod attribute_options;
mod attributes;
mod error;
mod figures;
mod foreign;
mod frame_map;
mod frequency;
mod idle;
mod mapped;
mod monitor;
mod order;
mod pacing;
mod packed;
mod panel;
mod pieces;
mod probe;
mod range;
pub mod rate;
mod region;
mod region_set;
pub mod scheme;
mod sink;
mod snapshot;
mod steady;
pub mod survey;
mod target;
mod tier;
pub mod tiering;
mod unit_name;
pub mod units;
mod usage;
mod views;

pub use activity::{Activity, AtRest};
pub use allocation::{Allocation, Allocations, CallStack, MappingCall, StackFrame, StackId};
pub use areas::areas;
pub use attribute_options::AttributeOptions;
pub use attributes::{Attributes, AttributesError, MIN_SAMPLING};
pub use error::{BoxError, chain};
pub use figures::{Count, Figures, Quantity};
pub use foreign::{LONGEST_NAME, bytes_of, end_of, is_unsafe, sanitise, sanitise_lines, start_of, text_of};
pub use frame_map::{FrameMap, FrameSet};
pub use frequency::Frequency;
pub use idle::{IdleTally, MOST_INTERVALS, PageState};
pub use mapped::{MappedPart, is_memory, mapping_at};
pub use monitor::{Monitor, MonitorError, Next, StepWork, SurveyWork, TargetSearch};
pub use pacing::{
    Affordable, Budget, Controller, IntervalTuner, IntervalsGoal, Pace, PaceOptions, Pacer, Shares, Start,
    SurveyInterval,
};
pub use packed::PackedRanges;
pub use panel::{Estimate, MappingPanel, PanelSnapshot, TargetPanel};
pub use probe::{AccessProbe, Granularity, Observation, PageLook, PageProbe, Sample};
pub use range::{AddrRange, PAGE_SIZE, push_joined};
pub use region::Region;
pub use sink::{Round, Sink};
pub use snapshot::{RegionSnapshot, Snapshot, TargetSnapshot};
pub use target::{
    ANONYMOUS, AddressSpace, CgroupId, FileId, Layout, MOST_JOIN, MappedFile, Mapping, NodeId, Permissions, ProcessId,
    TargetId, TargetSpace, shown_name,
};
pub use tier::{Node, TierError, TierOrigin, Tiers};
pub use unit_name::{is_unit, unit_in};
pub use usage::{MemoryUse, SystemMemory};
pub use views::{SecondView, second_views};

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
