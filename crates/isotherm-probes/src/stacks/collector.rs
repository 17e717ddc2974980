//! Calls that map memory, with the names of the functions that made them.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use framehop::x86_64::CacheX86_64;
use isotherm_core::{Allocation, Allocations, CallStack, MappingCall, StackFrame, StackId, TargetId};
use isotherm_kernel::{ClockOffsets, monotonic, since_boot};

use super::calls::Call;
use super::modules::UnwindTables;
use super::perf_map::{Stamp, stamp_of};
use super::symbols::Symbols;
use super::tracer::Calls;
use super::unwind::Code;
use super::{StackTracer, StacksError};

/// The most stacks of a run. Calls with further ones have none.
const MOST_STACKS: usize = 1 << 16;
/// The most stacks that are kept by their addresses, of one process.
const MOST_KNOWN: usize = 1 << 12;
/// The most processes whose code is kept, and the most files.
const MOST_KEPT: usize = 1 << 10;

/// Reads the calls of the watched processes that map memory. It stays on one thread.
pub struct StackCollector {
    tracer: StackTracer,
    calls: Calls,
    /// The time by `CLOCK_MONOTONIC` at which the run started.
    start: Duration,
    /// The calls have the kernel's times.
    offsets: ClockOffsets,
    tables: UnwindTables,
    cache: CacheX86_64,
    symbols: Symbols,
    processes: HashMap<TargetId, Traced>,
    /// The stacks of the run, with their numbers.
    stacks: HashMap<CallStack, StackId>,
    /// How many calls were lost up to the last batch.
    lost: u64,
}

/// A process that has made calls.
struct Traced {
    code: Code,
    /// Stacks by the addresses of their calls. One with functions that the process has made itself is known as long as
    /// its file of names stays as it was: code addresses are used again.
    known: HashMap<Box<[u64]>, (StackId, Option<Stamp>)>,
}

impl fmt::Debug for StackCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackCollector").field("stacks", &self.stacks.len()).finish_non_exhaustive()
    }
}

impl StackCollector {
    /// Collects the calls that `tracer` reports, on the thread that calls this.
    ///
    /// # Errors
    /// If the memory that the eBPF programs write to cannot be read.
    pub fn new(tracer: StackTracer) -> Result<Self, StacksError> {
        let calls = tracer.calls()?;
        Ok(Self {
            tracer,
            calls,
            start: monotonic(),
            offsets: ClockOffsets::read(Path::new("/")),
            tables: UnwindTables::default(),
            cache: CacheX86_64::new(),
            symbols: Symbols::new(),
            processes: HashMap::new(),
            stacks: HashMap::new(),
            lost: 0,
        })
    }

    /// Watches and leaves processes.
    pub fn tracer(&self) -> &StackTracer {
        &self.tracer
    }

    /// The next calls. Waits for one for at most `within`, and takes no more than 64 at a time. Times count from when
    /// the collector was made.
    ///
    /// # Errors
    /// If the calls cannot be waited for.
    pub fn next(&mut self, within: Duration) -> Result<Allocations, StacksError> {
        let calls = self.calls.next(within)?;
        let mut batch = Allocations { time: monotonic().saturating_sub(self.start), ..Allocations::default() };
        for call in calls {
            let target = TargetId::process(call.pid, whole_ticks(self.offsets.since_boot(call.started)));
            let time = self.offsets.monotonic(call.time).saturating_sub(self.start);
            let stack = self.stack(target, &call, time, &mut batch.stacks);
            batch.calls.push(Allocation { time, target, call: call.call, range: call.range, stack });
        }
        let lost = self.tracer.lost();
        batch.lost = lost.saturating_sub(std::mem::replace(&mut self.lost, lost));
        Ok(batch)
    }

    /// The number of the stack of a call at the time `at`. Adds the stack to `new` if no call had it before. `None` if
    /// it is not known.
    fn stack(
        &mut self,
        target: TargetId,
        call: &Call,
        at: Duration,
        new: &mut Vec<(StackId, CallStack)>,
    ) -> Option<StackId> {
        if call.call == MappingCall::Exec {
            self.processes.remove(&target);
            return None;
        }
        if self.processes.len() >= MOST_KEPT && !self.processes.contains_key(&target) {
            self.processes.clear();
        }
        if self.tables.len() >= MOST_KEPT {
            self.tables.clear();
            self.symbols = Symbols::new();
        }
        let read = |tables: &mut UnwindTables| Traced { code: Code::read(call.pid, tables), known: HashMap::new() };
        let traced = self.processes.entry(target).or_insert_with(|| read(&mut self.tables));
        let mut addresses = traced.code.unwind(call, &mut self.cache);
        if let Some((known, made)) = traced.known.get(&addresses[..])
            && (made.is_none() || *made == stamp_of(call.pid))
        {
            return Some(*known);
        }
        // New code may have been loaded since the code was read.
        if addresses.iter().any(|address| traced.code.mapping_at(*address).is_none()) {
            *traced = read(&mut self.tables);
            addresses = traced.code.unwind(call, &mut self.cache);
        }
        let made = stamp_of(call.pid);
        let now = monotonic().saturating_sub(self.start);
        let (frames, any_made) = self.symbols.frames(call.pid, &traced.code, &addresses, (at.min(now), now));
        let id = number(&mut self.stacks, frames, new)?;
        if traced.known.len() >= MOST_KNOWN {
            traced.known.clear();
        }
        traced.known.insert(addresses.into(), (id, made.filter(|_| any_made)));
        Some(id)
    }
}

/// The number of a stack in a run.
fn number(
    stacks: &mut HashMap<CallStack, StackId>,
    frames: Arc<[StackFrame]>,
    new: &mut Vec<(StackId, CallStack)>,
) -> Option<StackId> {
    if let Some(id) = stacks.get(&frames) {
        return Some(*id);
    }
    let id = StackId::try_from(stacks.len()).ok().filter(|_| stacks.len() < MOST_STACKS && !frames.is_empty())?;
    stacks.insert(Arc::clone(&frames), id);
    new.push((id, frames));
    Some(id)
}

/// A start of a process as `/proc/PID/stat` has it, in whole clock ticks.
fn whole_ticks(since_boot_exact: Duration) -> Duration {
    let tick = since_boot(1).as_nanos().max(1);
    Duration::from_nanos((since_boot_exact.as_nanos() / tick * tick) as u64)
}
