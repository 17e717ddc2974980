//! Names of functions.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use isotherm_core::{LONGEST_NAME, StackFrame, start_of};
use isotherm_kernel::inner_pid;

use super::unwind::Code;

/// A file of names that a just-in-time compiler has written is not read if it is longer, in bytes.
const LONGEST_PERF_MAP: u64 = 64 << 20;

/// Looks up names of functions in processes that live.
pub(super) struct Symbols {
    symbolizer: Symbolizer,
}

impl Symbols {
    pub(super) fn new() -> Self {
        let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        Self { symbolizer }
    }

    /// The functions at these addresses of process `pid`.
    pub(super) fn frames(&self, pid: u32, code: &Code, addresses: &[u64]) -> Arc<[StackFrame]> {
        let mut process = Process::new(Pid::from(pid));
        process.debug_syms = false;
        process.perf_map = has_perf_map(pid);
        let found = self.symbolizer.symbolize(&Source::Process(process), Input::AbsAddr(addresses));
        let found = found.unwrap_or_default();
        let names = found.iter().map(Some).chain(std::iter::repeat(None));
        addresses.iter().zip(names).map(|(&address, found)| frame(address, code, found)).collect()
    }
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

/// Whether a process has a file of names of the code that it has made. Other kinds of files are passed over: the
/// process chooses what is there, and opening a pipe would wait.
fn has_perf_map(pid: u32) -> bool {
    let id = inner_pid(Path::new("/"), pid).unwrap_or(pid);
    let path = format!("/proc/{pid}/root/tmp/perf-{id}.map");
    fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() <= LONGEST_PERF_MAP)
}
