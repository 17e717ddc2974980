//! Unwinding of stacks: the addresses of the calls that led to a system call.

use std::fs::File;

use framehop::Unwinder as _;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use isotherm_kernel::{CodeMapping, read_code_mappings};

use super::calls::Call;
use super::modules::{Table, UnwindTables};

/// The most frames of a stack.
pub(super) const MOST_FRAMES: usize = 127;

/// The code of a process, with what unwinding needs of it.
pub(super) struct Code {
    unwinder: UnwinderX86_64<Table>,
    mappings: Vec<CodeMapping>,
}

impl Code {
    /// Reads the code that a process has mapped. Nothing if it has ended.
    pub(super) fn read(pid: u32, tables: &mut UnwindTables) -> Self {
        let read = File::open(format!("/proc/{pid}/maps")).and_then(read_code_mappings);
        let mappings = read.unwrap_or_default();
        let mut unwinder = UnwinderX86_64::new();
        mappings
            .iter()
            .filter_map(|mapping| tables.module(pid, mapping))
            .for_each(|module| unwinder.add_module(module));
        Self { unwinder, mappings }
    }

    /// The mapping at an address.
    pub(super) fn mapping_at(&self, address: u64) -> Option<&CodeMapping> {
        let after = self.mappings.partition_point(|mapping| mapping.range.start() <= address);
        self.mappings[..after].last().filter(|mapping| mapping.range.contains(address))
    }

    /// The addresses of the calls that led to `call`, the innermost first. Each lies in the instruction of the call.
    pub(super) fn unwind(&self, call: &Call, cache: &mut CacheX86_64) -> Vec<u64> {
        let registers = call.registers;
        let mut read = |address: u64| {
            let at = usize::try_from(address.wrapping_sub(registers.sp)).map_err(drop)?;
            call.stack.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_ne_bytes).ok_or(())
        };
        let start = UnwindRegsX86_64::new(registers.ip, registers.sp, registers.bp);
        let mut frames = self.unwinder.iter_frames(registers.ip, start, cache, &mut read);
        let mut addresses = Vec::new();
        while addresses.len() < MOST_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            addresses.push(frame.address_for_lookup());
        }
        addresses
    }
}
