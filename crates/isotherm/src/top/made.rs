//! Made findings for tests: one process with a heap, anonymous memory with a hot part, and a stack.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};
use isotherm_record::{Cost, TargetInfo};
use isotherm_report::Colour;

use super::app::{App, Look, Run};
use crate::session::Finding;

pub const MIB: u64 = 1 << 20;
pub const AGGREGATION: Duration = Duration::from_millis(100);

/// Where the anonymous memory begins: 64 MiB, of which the second quarter is hot, the third cannot be observed.
pub const BASE: u64 = 0x7f00_0000_0000;
pub const STACK: u64 = 0x7ffc_0000_0000;

pub fn range(start: u64, bytes: u64) -> AddrRange {
    AddrRange::new(start, start + bytes).unwrap()
}

fn target(pid: u32) -> TargetSnapshot {
    let mapping =
        |start, bytes, name: &str| Mapping { range: range(start, bytes), permissions: *b"rw-p", name: name.into() };
    let region = |start, bytes, nr_accesses, nr_unobservable| RegionSnapshot {
        range: range(start, bytes),
        nr_accesses,
        nr_unobservable,
        age: 30,
    };
    TargetSnapshot {
        id: TargetId(pid),
        regions: vec![
            region(0x1000_0000, 4 * MIB, 5, 0),
            region(BASE, 16 * MIB, 0, 0),
            region(BASE + 16 * MIB, 16 * MIB, 20, 0),
            region(BASE + 32 * MIB, 16 * MIB, 0, 20),
            region(BASE + 48 * MIB, 16 * MIB, 0, 0),
            region(STACK, MIB, 1, 0),
        ],
        mappings: [
            mapping(0x1000_0000, 4 * MIB, "[heap]"),
            mapping(BASE, 64 * MIB, ""),
            mapping(STACK, MIB, "[stack]"),
        ]
        .into(),
    }
}

/// What the `nth` aggregation brought, from 1 on, of these processes.
pub fn finding(nth: u32, pids: &[u32]) -> Finding {
    let info = |pid: &u32| {
        let info = TargetInfo { command: format!("./made --number {pid}"), started_unix_ns: 0 };
        (TargetId(*pid), Arc::new(info))
    };
    Finding {
        snapshot: Snapshot {
            time: AGGREGATION * nth,
            aggregation: AGGREGATION,
            samples: 20,
            targets: pids.iter().copied().map(target).collect(),
            rounds: 20,
            reads: 120,
            max_reads: 6,
            clears: 40,
        },
        cost: Cost {
            rounds: 20,
            late_rounds: 1,
            reads: 120,
            max_reads: 6,
            clears: 40,
            cpu_ns: 500_000,
            unobservable_bytes: 16 * MIB,
        },
        infos: pids.iter().map(info).collect(),
    }
}

/// A screen of this size that has seen so many aggregations.
pub fn app(size: (u16, u16), colour: Colour, aggregations: u32, pids: &[u32]) -> App {
    let run = Run { probe: "bpf", coarse: false, aggregation: AGGREGATION, max_regions: 1000, output: None };
    let mut app = App::new(run, Look { colour, unicode: colour != Colour::None });
    app.size = size;
    (1..=aggregations).for_each(|nth| app.take(finding(nth, pids)));
    app
}
