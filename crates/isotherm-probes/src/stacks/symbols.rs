//! Names of functions.

use std::sync::Arc;
use std::time::Duration;

use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use isotherm_core::{LONGEST_NAME, StackFrame, start_of};

use super::perf_map::PerfMapFile;
use super::unwind::Code;

/// The files of names of this many processes are kept: those that were needed last.
const MOST_PERF_MAPS: usize = 4;

/// Looks up names of functions in processes that live.
pub(super) struct Symbols {
    symbolizer: Symbolizer,
    /// The one that was needed last is the last.
    perf_maps: Vec<PerfMapFile>,
}

impl Symbols {
    pub(super) fn new() -> Self {
        let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        Self { symbolizer, perf_maps: Vec::new() }
    }

    /// The functions that were at these addresses of process `pid` at the time `at`, which is not after `now`, and
    /// whether the process has made some of them itself: then
    /// other functions may be there later.
    pub(super) fn frames(
        &mut self,
        pid: u32,
        code: &Code,
        addresses: &[u64],
        (at, now): (Duration, Duration),
    ) -> (Arc<[StackFrame]>, bool) {
        let mut process = Process::new(Pid::from(pid));
        (process.debug_syms, process.perf_map) = (false, false);
        let found = self.symbolizer.symbolize(&Source::Process(process), Input::AbsAddr(addresses));
        let found = found.unwrap_or_default();
        let names = found.iter().map(Some).chain(std::iter::repeat(None));
        let mut frames: Vec<_> =
            addresses.iter().zip(names).map(|(&address, found)| frame(address, code, found)).collect();
        let is_made = |address: u64| code.mapping_at(address).is_none_or(|mapping| mapping.file.is_none());
        let nameless = |(frame, address): &(&StackFrame, &u64)| frame.function.is_none() && is_made(**address);
        let any_made = frames.iter().zip(addresses).any(|of| nameless(&of));
        if any_made {
            let perf_map = perf_map_of(&mut self.perf_maps, pid);
            for (frame, &address) in frames.iter_mut().zip(addresses).filter(|(frame, at)| nameless(&(frame, at))) {
                if let Some((name, offset)) = perf_map.find(address, at, now) {
                    (frame.function, frame.offset) = (Some(name.into()), offset);
                }
            }
        }
        (frames.into(), any_made)
    }
}

/// The file of the functions that process `pid` has made itself.
fn perf_map_of(kept: &mut Vec<PerfMapFile>, pid: u32) -> &mut PerfMapFile {
    let known = kept.iter().position(|file| file.pid() == pid).map(|at| kept.remove(at));
    if kept.len() >= MOST_PERF_MAPS {
        kept.remove(0);
    }
    kept.push(known.unwrap_or_else(|| PerfMapFile::of(pid)));
    let last = kept.len() - 1;
    &mut kept[last]
}

/// The function at an address where this symbol was found.
fn frame(address: u64, code: &Code, found: Option<&Symbolized<'_>>) -> StackFrame {
    let mapping = code.mapping_at(address);
    let module = mapping.filter(|mapping| !mapping.name.is_empty()).map(|mapping| Arc::clone(&mapping.name));
    match found.and_then(Symbolized::as_sym) {
        Some(symbol) => {
            let function = start_of(symbol.name.as_bytes(), LONGEST_NAME);
            StackFrame { function: Some(function.into()), module, offset: symbol.offset as u64 }
        }
        None => {
            let in_file = mapping.and_then(|mapping| Some((mapping.range.start(), mapping.file?.1)));
            let offset = in_file.map_or(address, |(start, offset)| (address - start).saturating_add(offset));
            StackFrame { function: None, module, offset }
        }
    }
}
