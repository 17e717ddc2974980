//! The calls as the eBPF programs report them.

use std::time::Duration;

use isotherm_core::{AddrRange, MappingCall};

/// A call that mapped memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// When the call returned, by `CLOCK_MONOTONIC`.
    pub(super) time: Duration,
    pub(super) pid: u32,
    /// When the process started, since the boot.
    pub(super) started: Duration,
    pub(super) call: MappingCall,
    pub(super) range: AddrRange,
    pub(super) registers: Registers,
    /// A copy of the stack, from [`Registers::sp`] upwards.
    pub(super) stack: Vec<u8>,
}

/// The registers of user space that unwinding begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

/// The length of `struct call` of `calls.bpf.c` without the copy of the stack.
const HEAD: usize = 72;

impl Call {
    /// Reads a `struct call` of `calls.bpf.c`. `None` if the bytes are no such call, or if the call mapped
    /// nothing.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (head, stack) = bytes.split_at_checked(HEAD)?;
        let long = |nth: usize| Some(u64::from_ne_bytes(*head.get(nth * 8..)?.first_chunk()?));
        let int = |nth: usize| Some(u32::from_ne_bytes(*head.get(56 + nth * 4..)?.first_chunk()?));
        let call = match int(1)? {
            0 => MappingCall::Mmap,
            1 => MappingCall::Mremap,
            2 => MappingCall::Brk,
            3 => MappingCall::Exec,
            _ => return None,
        };
        Some(Self {
            time: Duration::from_nanos(long(0)?),
            started: Duration::from_nanos(long(1)?),
            range: page_range(long(2)?, long(3)?)?,
            registers: Registers { ip: long(4)?, sp: long(5)?, bp: long(6)? },
            pid: int(0)?,
            call,
            stack: stack.get(..int(2)? as usize)?.to_vec(),
        })
    }
}

/// The whole pages of a range, as the kernel maps them.
fn page_range(start: u64, end: u64) -> Option<AddrRange> {
    let page = isotherm_core::PAGE_SIZE;
    AddrRange::new(start / page * page, end.checked_next_multiple_of(page)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn event(kind: u32, copied: u32) -> Vec<u8> {
        let longs = [5_u64, 7, 0x1000, 0x2801, 1, 2, 3].into_iter().flat_map(u64::to_ne_bytes);
        let ints = [42, kind, copied, 0].into_iter().flat_map(u32::to_ne_bytes);
        longs.chain(ints).chain([9; 16]).collect()
    }

    #[test]
    fn a_call_is_read_with_the_whole_pages_that_it_mapped() {
        let call = Call::read(&event(2, 8)).unwrap();
        assert_eq!((call.pid, call.call, call.stack.len()), (42, MappingCall::Brk, 8));
        assert_eq!((call.time, call.started), (Duration::from_nanos(5), Duration::from_nanos(7)));
        assert_eq!(call.range, AddrRange::new(0x1000, 0x3000).unwrap());
        assert_eq!(call.registers, Registers { ip: 1, sp: 2, bp: 3 });
    }

    #[test]
    fn what_is_no_call_is_passed_over() {
        assert_eq!(Call::read(&event(4, 8)), None);
        assert_eq!(Call::read(&event(0, 17)), None);
        assert_eq!(Call::read(&event(0, 8)[..71]), None);
    }
}
