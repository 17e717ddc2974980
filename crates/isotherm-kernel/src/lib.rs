//! Reads and calls the Linux kernel's interfaces to memory.
//!
//! - [`Processes`]: the processes of a run and their mappings
//! - [`Selection`]: which processes those are
//! - [`PhysicalMemory`]: the ranges of physical memory
//! - [`page_cache`]: the page cache of files
//! - [`pages`]: the kernel's tables of pages
//! - [`cgroup`]: control groups
//! - [`clear_refs`]: clears the accessed bits of a process
//! - [`lru_gen`]: asks the multi-generational LRU to age a cgroup, which clears accessed bits
//! - [`madvise`]: advice on the memory of another process
//! - [`memory_use`], [`anonymous_bytes`], [`huge_bytes`], [`system_memory`], [`meminfo`], [`SystemGauges`]: how much
//!   memory is in use
//! - [`system_counters`]: faults, refaults and stalls of the whole system
//! - [`compressed_swap`]: the memory that zram and zswap take
//! - [`memory_nodes`], [`nodes_with_memory`], [`tiers`]: the memory nodes, and how fast they are
//! - [`node_used_share`]: how much of a memory node is used
//! - [`room_by_node`]: how much memory a node can take before the kernel reclaims there
//! - [`transparent_huge_pages`]: their setting
//! - [`set_transparent_huge_pages`], [`drop_caches`], [`ZramSwap`]: settings that a user allowed to change
//! - [`scheduling`]: how a thread is scheduled
//! - [`bit_prices`]: what it costs to clear accessed bits, and a process to set them again
//! - [`housekeeping_cpus`]: the processors that are not kept for the work of others
//! - [`Elsewhere`]: who accesses memory of a process without its page tables
//! - [`listening_names`], [`peer_user`]: Unix sockets with abstract names
//! - [`lock_owned`], [`remove_owned`]: files that say what a run does to the machine, and whether it lives
//! - [`keep_freed_memory`]: for programs that make and drop large tables; [`share_freed_memory`],
//!   [`return_freed_memory`]: for those that run for long
//! - [`Waiter`]: waits for the next sampling round
//! - [`User`]: a user as whom a command is started
//! - [`UserEvent`]: an event of the program for tracers

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod allocator;
mod births;
pub mod cgroup;
pub mod clear_refs;
mod confinement;
mod counters;
mod elsewhere;
mod ends;
mod gauges;
pub mod hold;
mod host;
mod housekeeping;
mod listing;
pub mod lru_gen;
pub mod madvise;
mod mapping_reader;
mod maps;
mod member;
mod names;
mod node_use;
mod nodes;
mod owned_file;
pub mod page_cache;
pub mod pages;
mod part;
mod pattern;
mod physical;
mod pidfd;
mod price;
mod process;
mod process_events;
mod process_table;
mod processes;
mod procmap;
pub mod scheduling;
mod scratch;
mod select;
mod settings;
mod shared_spaces;
mod time_namespace;
mod unix_sockets;
mod unreadable;
mod usage;
mod user;
mod user_event;
mod wait;
mod zones;

pub use allocator::{keep_freed_memory, return_freed_memory, share_freed_memory};
pub use confinement::confinement;
pub use counters::{SystemCounters, compressed_swap, system_counters};
pub use elsewhere::Elsewhere;
pub use gauges::{GaugeError, SystemGauges};
pub use host::{Host, in_another_user_namespace, monitor_cpu_time, now_since_boot, unix_ns};
pub use housekeeping::{HousekeepingError, housekeeping_cpus};
pub use listing::{inner_pid, process_ids};
pub use maps::{CodeMapping, MappingNames, MappingUse, read_code_mappings, read_mapping_uses, read_mappings};
pub use member::Member;
pub use names::{command_line, has_arguments, memory_id, process_name, stat_field};
pub use node_use::{NodeUseError, node_size, node_used_share};
pub use nodes::{NodesError, memory_nodes, nodes_with_memory, tiers};
pub use owned_file::{OwnedFile, lock_owned, remove_owned};
pub use pages::{RamError, TableError};
pub use part::{Part, page_ranges};
pub use pattern::{Glob, NamePattern, PatternError};
pub use physical::PhysicalMemory;
pub use pidfd::Pidfd;
pub use price::{BitPrices, bit_prices};
pub use process::{Process, TargetError, mapped_ranges, mapped_within, mappings_of, since_boot};
pub use process_table::ProcessTable;
pub use processes::Processes;
pub use scratch::{HUGE, NoScratch, Scratch};
pub use select::{ContainerNames, Containers, MOST_SELECTED, Parties, Selection, Selector, tell_containers};
pub use settings::{ZramSwap, drop_caches, has_free_zram, set_transparent_huge_pages};
pub use time_namespace::{ClockOffsets, monotonic};
pub use unix_sockets::{listening_names, peer_user};
pub use unreadable::{Unreadable, hint as unreadable_hint};
pub use usage::{
    anonymous_bytes, huge_bytes, locked, major_faults, meminfo, memory_use, page_faults, resident, system_memory,
    transparent_huge_pages,
};
pub use user::{User, group_id};
pub use user_event::UserEvent;
pub use wait::{Rest, Stop, Waiter, Woken};
pub use zones::{ZoneError, room_by_node};
