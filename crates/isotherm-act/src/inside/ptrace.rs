//! The requests of `ptrace(2)` that are needed, one function each. Nothing here allocates or takes a lock.

#![allow(unsafe_code)]

use std::mem::{MaybeUninit, size_of};
use std::ptr;

use rustix::io::Errno;

/// The registers of a thread.
pub(super) type Registers = libc::user_regs_struct;

/// The size of the buffer for floating-point and vector registers, in bytes. AMX needs the most: 11 KiB.
pub(super) const VECTOR_BUFFER: usize = 16 << 10;

const NT_X86_XSTATE: usize = 0x202;
/// The shadow stack pointer. It exists only if the thread has a shadow stack.
const NT_X86_SHSTK: usize = 0x204;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// `struct ptrace_rseq_configuration` of `linux/ptrace.h`. `pointer` is the address of the `struct rseq` of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RseqConfiguration {
    pub pointer: u64,
    pub size: u32,
    pub signature: u32,
    pub flags: u32,
    pub padding: u32,
}

/// A thread that is traced, or that will be traced. The number is its thread ID.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracee(pub i32);

/// The state of a thread, as `waitpid(2)` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The thread has not stopped.
    Nothing,
    /// The thread has stopped with this status.
    Stopped(i32),
    /// The thread has ended, or this process does not trace it.
    Gone,
}

impl Tracee {
    fn request(self, request: libc::c_uint, addr: usize, data: usize) -> Result<usize, Errno> {
        // SAFETY: the methods below are the only callers. They pass numbers, or pointers to memory that is borrowed for
        // the call and has the size that the request writes or reads.
        let result = unsafe { libc::ptrace(request, self.0, addr, data) };
        usize::try_from(result).map_err(|_| last_errno())
    }

    /// Attaches the thread without stopping it. If this process ends, the kernel detaches the thread and it continues.
    pub(super) fn seize(self) -> Result<(), Errno> {
        self.request(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACESYSGOOD as usize).map(drop)
    }

    /// Requests a stop of the thread.
    pub(super) fn interrupt(self) -> Result<(), Errno> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0).map(drop)
    }

    /// Continues the thread and delivers `signal`, or none if it is 0.
    pub(super) fn resume(self, signal: i32) -> Result<(), Errno> {
        self.request(libc::PTRACE_CONT, 0, signal as usize).map(drop)
    }

    /// Continues the thread until it enters or leaves a system call.
    pub(super) fn resume_to_call(self) -> Result<(), Errno> {
        self.request(libc::PTRACE_SYSCALL, 0, 0).map(drop)
    }

    /// Detaches the thread and delivers `signal`, or none if it is 0.
    pub(super) fn detach(self, signal: i32) -> Result<(), Errno> {
        self.request(libc::PTRACE_DETACH, 0, signal as usize).map(drop)
    }

    /// The registers of the thread.
    pub(super) fn registers(self) -> Result<Registers, Errno> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        self.request(libc::PTRACE_GETREGS, 0, registers.as_mut_ptr() as usize)?;
        // SAFETY: `registers` was initialized with zeros, which are valid, and the kernel has filled it.
        Ok(unsafe { registers.assume_init() })
    }

    /// Sets all registers of the thread in one request.
    pub(super) fn set_registers(self, registers: &Registers) -> Result<(), Errno> {
        self.request(libc::PTRACE_SETREGS, 0, ptr::from_ref(registers) as usize).map(drop)
    }

    /// Reads the floating-point and vector registers as an XSAVE image. Returns the size of the image in bytes.
    pub(super) fn vector_registers(self, buffer: &mut [u8; VECTOR_BUFFER]) -> Result<usize, Errno> {
        self.register_set(NT_X86_XSTATE, buffer)
    }

    /// Whether the thread has a shadow stack.
    pub(super) fn has_shadow_stack(self) -> bool {
        self.register_set(NT_X86_SHSTK, &mut [0; 8]).is_ok()
    }

    fn register_set(self, which: usize, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        self.request(libc::PTRACE_GETREGSET, which, ptr::from_mut(&mut vector) as usize)?;
        Ok(vector.iov_len)
    }

    /// The mask of signals that the thread blocks.
    pub(super) fn blocked_signals(self) -> Result<u64, Errno> {
        let mut mask = 0_u64;
        self.request(PTRACE_GETSIGMASK, size_of::<u64>(), ptr::from_mut(&mut mask) as usize)?;
        Ok(mask)
    }

    /// The location of the restartable sequences of the thread. This needs Linux 5.13 or later.
    pub(super) fn restartable_sequences(self) -> Result<RseqConfiguration, Errno> {
        let mut configuration = RseqConfiguration::default();
        let size = size_of::<RseqConfiguration>();
        self.request(PTRACE_GET_RSEQ_CONFIGURATION, size, ptr::from_mut(&mut configuration) as usize)?;
        Ok(configuration)
    }

    /// The `si_code` of the signal that stopped the thread. It says where the signal comes from.
    pub(super) fn signal_code(self) -> Result<i32, Errno> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        self.request(libc::PTRACE_GETSIGINFO, 0, info.as_mut_ptr() as usize)?;
        // SAFETY: `info` was initialized with zeros, which are valid, and the kernel has filled it.
        Ok(unsafe { info.assume_init() }.si_code)
    }

    /// Checks whether the thread has stopped or ended. This does not block.
    pub(super) fn wait(self) -> Waited {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the status and is borrowed for the call.
        match unsafe { libc::waitpid(self.0, &mut status, libc::WNOHANG | libc::__WALL) } {
            0 => Waited::Nothing,
            pid if pid == self.0 && libc::WIFSTOPPED(status) => Waited::Stopped(status),
            // Without WCONTINUED, any other status means that the thread has ended.
            _ => Waited::Gone,
        }
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
