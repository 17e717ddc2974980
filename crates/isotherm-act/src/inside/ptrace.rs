//! The few requests of `ptrace` that are needed, one function each. Nothing here allocates or takes a lock.

#![allow(unsafe_code)]

use std::mem::{MaybeUninit, size_of};
use std::ptr;

use rustix::io::Errno;

/// The registers of a thread.
pub(super) type Registers = libc::user_regs_struct;

/// Space for a thread's floating-point and vector registers: AMX has the largest, 11 KiB.
pub(super) const VECTOR_ROOM: usize = 16 << 10;

const NT_X86_XSTATE: usize = 0x202;
/// The shadow stack's pointer; there is none unless the thread has a shadow stack.
const NT_X86_SHSTK: usize = 0x204;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// Where a thread keeps what it tells the kernel of restartable sequences; see `linux/ptrace.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RseqConfiguration {
    pub pointer: u64,
    pub size: u32,
    pub signature: u32,
    pub flags: u32,
    pub padding: u32,
}

/// One thread that is, or is to be, traced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracee(pub i32);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// Nothing yet.
    Nothing,
    /// It stopped: `waitpid`'s status.
    Stopped(i32),
    /// It has ended and is reaped, or is not (any more) traced by this process.
    Gone,
}

impl Tracee {
    fn request(self, request: libc::c_uint, addr: usize, data: usize) -> Result<usize, Errno> {
        // SAFETY: the callers below pass, for each request, pointers to memory that is borrowed for the call and has
        // the size
        // that the request says it has, or plain numbers.
        let result = unsafe { libc::ptrace(request, self.0, addr, data) };
        usize::try_from(result).map_err(|_| last_errno())
    }

    /// Begins to trace it. It runs on, is not stopped by that, and is let go, not killed, should this process end.
    pub(super) fn seize(self) -> Result<(), Errno> {
        self.request(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACESYSGOOD as usize).map(drop)
    }

    /// Asks it to stop.
    pub(super) fn interrupt(self) -> Result<(), Errno> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0).map(drop)
    }

    /// Lets it run on, with this signal or none.
    pub(super) fn go_on(self, signal: i32) -> Result<(), Errno> {
        self.request(libc::PTRACE_CONT, 0, signal as usize).map(drop)
    }

    /// Lets it run on to where it enters or leaves the next system call.
    pub(super) fn go_to_call(self) -> Result<(), Errno> {
        self.request(libc::PTRACE_SYSCALL, 0, 0).map(drop)
    }

    /// Lets go of it, with this signal or none.
    pub(super) fn detach(self, signal: i32) -> Result<(), Errno> {
        self.request(libc::PTRACE_DETACH, 0, signal as usize).map(drop)
    }

    /// Its registers.
    pub(super) fn registers(self) -> Result<Registers, Errno> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        self.request(libc::PTRACE_GETREGS, 0, registers.as_mut_ptr() as usize)?;
        // SAFETY: all zero is a value of it, and the kernel has filled it.
        Ok(unsafe { registers.assume_init() })
    }

    /// Gives it these registers, all at once.
    pub(super) fn set_registers(self, registers: &Registers) -> Result<(), Errno> {
        self.request(libc::PTRACE_SETREGS, 0, ptr::from_ref(registers) as usize).map(drop)
    }

    /// Its floating-point and vector registers, as XSAVE writes them; gives their size.
    pub(super) fn vector_registers(self, room: &mut [u8; VECTOR_ROOM]) -> Result<usize, Errno> {
        self.register_set(NT_X86_XSTATE, room)
    }

    /// Whether it has a shadow stack.
    pub(super) fn has_shadow_stack(self) -> bool {
        self.register_set(NT_X86_SHSTK, &mut [0; 8]).is_ok()
    }

    fn register_set(self, which: usize, room: &mut [u8]) -> Result<usize, Errno> {
        let mut vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        self.request(libc::PTRACE_GETREGSET, which, ptr::from_mut(&mut vector) as usize)?;
        Ok(vector.iov_len)
    }

    /// The signals that it blocks.
    pub(super) fn blocked_signals(self) -> Result<u64, Errno> {
        let mut mask = 0_u64;
        self.request(PTRACE_GETSIGMASK, size_of::<u64>(), ptr::from_mut(&mut mask) as usize)?;
        Ok(mask)
    }

    /// Where it keeps its restartable sequences. Linux 5.13 or later.
    pub(super) fn restartable_sequences(self) -> Result<RseqConfiguration, Errno> {
        let mut configuration = RseqConfiguration::default();
        let size = size_of::<RseqConfiguration>();
        self.request(PTRACE_GET_RSEQ_CONFIGURATION, size, ptr::from_mut(&mut configuration) as usize)?;
        Ok(configuration)
    }

    /// The number and the code of the signal that it is stopped with, which tells where that came from.
    pub(super) fn signal_code(self) -> Result<i32, Errno> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        self.request(libc::PTRACE_GETSIGINFO, 0, info.as_mut_ptr() as usize)?;
        // SAFETY: all zero is a value of it, and the kernel has filled it.
        Ok(unsafe { info.assume_init() }.si_code)
    }

    /// Looks whether it has stopped or ended.
    pub(super) fn wait(self) -> Waited {
        let mut status = 0;
        // SAFETY: `status` is borrowed for the call.
        match unsafe { libc::waitpid(self.0, &mut status, libc::WNOHANG | libc::__WALL) } {
            0 => Waited::Nothing,
            pid if pid == self.0 && libc::WIFSTOPPED(status) => Waited::Stopped(status),
            // Continued is not asked for.
            _ => Waited::Gone,
        }
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
