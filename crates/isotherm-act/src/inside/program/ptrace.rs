//! The requests of `ptrace(2)` that are needed, one function each. Nothing here allocates or takes a lock.

#![allow(unsafe_code)]

use core::ptr;

use super::sys::{Errno, call, number};

/// The registers of a thread: `struct user_regs_struct` of `asm/user_64.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// The size of the buffer for floating-point and vector registers, in bytes. AMX needs the most: 11 KiB.
pub const VECTOR_BUFFER: usize = 16 << 10;

const NT_X86_XSTATE: usize = 0x202;
/// The shadow stack pointer. It exists only if the thread has a shadow stack.
const NT_X86_SHSTK: usize = 0x204;

// The requests, `linux/ptrace.h` and `asm/ptrace-abi.h`.
const PTRACE_CONT: usize = 7;
const PTRACE_GETREGS: usize = 12;
const PTRACE_SETREGS: usize = 13;
const PTRACE_DETACH: usize = 17;
const PTRACE_SYSCALL: usize = 24;
const PTRACE_GETSIGINFO: usize = 0x4202;
const PTRACE_GETREGSET: usize = 0x4204;
const PTRACE_SEIZE: usize = 0x4206;
const PTRACE_INTERRUPT: usize = 0x4207;
const PTRACE_GETSIGMASK: usize = 0x420a;
const PTRACE_GET_RSEQ_CONFIGURATION: usize = 0x420f;
const PTRACE_O_TRACESYSGOOD: usize = 1;

// Options of wait4(2), `linux/wait.h`.
const WNOHANG: usize = 1;
const WALL: usize = 0x4000_0000;

/// `struct iovec`.
#[repr(C)]
struct Vector {
    base: *mut u8,
    length: usize,
}

/// `struct ptrace_rseq_configuration` of `linux/ptrace.h`. `pointer` is the address of the `struct rseq` of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RseqConfiguration {
    pub pointer: u64,
    pub size: u32,
    pub signature: u32,
    pub flags: u32,
    pub padding: u32,
}

/// A thread that is traced, or that will be traced. The number is its thread ID.
#[derive(Clone, Copy, Debug)]
pub struct Tracee(pub i32);

/// The state of a thread, as `waitpid(2)` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The thread has not stopped.
    Nothing,
    /// The thread has stopped with this status.
    Stopped(i32),
    /// The thread has ended, or this process does not trace it.
    Gone,
}

impl Tracee {
    fn request(self, request: usize, addr: usize, data: usize) -> Result<(), Errno> {
        // SAFETY: the methods below are the only callers. They pass numbers, or pointers to memory that is borrowed for
        // the call and has the size that the request writes or reads.
        unsafe { call(number::PTRACE, [request, self.0 as usize, addr, data, 0, 0]) }.map(drop)
    }

    /// Attaches the thread without stopping it. If this process ends, the kernel detaches the thread and it continues.
    pub fn seize(self) -> Result<(), Errno> {
        self.request(PTRACE_SEIZE, 0, PTRACE_O_TRACESYSGOOD)
    }

    /// Requests a stop of the thread.
    pub fn interrupt(self) -> Result<(), Errno> {
        self.request(PTRACE_INTERRUPT, 0, 0)
    }

    /// Continues the thread and delivers `signal`, or none if it is 0.
    pub fn resume(self, signal: i32) -> Result<(), Errno> {
        self.request(PTRACE_CONT, 0, signal as usize)
    }

    /// Continues the thread until it enters or leaves a system call.
    pub fn resume_to_call(self) -> Result<(), Errno> {
        self.request(PTRACE_SYSCALL, 0, 0)
    }

    /// Detaches the thread and delivers `signal`, or none if it is 0.
    pub fn detach(self, signal: i32) -> Result<(), Errno> {
        self.request(PTRACE_DETACH, 0, signal as usize)
    }

    /// The registers of the thread.
    pub fn registers(self) -> Result<Registers, Errno> {
        let mut registers = Registers::default();
        self.request(PTRACE_GETREGS, 0, &raw mut registers as usize)?;
        Ok(registers)
    }

    /// Sets all registers of the thread in one request.
    pub fn set_registers(self, registers: &Registers) -> Result<(), Errno> {
        self.request(PTRACE_SETREGS, 0, ptr::from_ref(registers) as usize)
    }

    /// Reads the floating-point and vector registers as an XSAVE image. Returns the size of the image in bytes.
    pub fn vector_registers(self, buffer: &mut [u8; VECTOR_BUFFER]) -> Result<usize, Errno> {
        self.register_set(NT_X86_XSTATE, buffer)
    }

    /// Whether the thread has a shadow stack.
    pub fn has_shadow_stack(self) -> bool {
        self.register_set(NT_X86_SHSTK, &mut [0; 8]).is_ok()
    }

    fn register_set(self, which: usize, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut vector = Vector { base: buffer.as_mut_ptr(), length: buffer.len() };
        self.request(PTRACE_GETREGSET, which, ptr::from_mut(&mut vector) as usize)?;
        Ok(vector.length)
    }

    /// The mask of signals that the thread blocks.
    pub fn blocked_signals(self) -> Result<u64, Errno> {
        let mut mask = 0_u64;
        self.request(PTRACE_GETSIGMASK, size_of::<u64>(), ptr::from_mut(&mut mask) as usize)?;
        Ok(mask)
    }

    /// The location of the restartable sequences of the thread. This needs Linux 5.13 or later.
    pub fn restartable_sequences(self) -> Result<RseqConfiguration, Errno> {
        let mut configuration = RseqConfiguration::default();
        let size = size_of::<RseqConfiguration>();
        self.request(PTRACE_GET_RSEQ_CONFIGURATION, size, ptr::from_mut(&mut configuration) as usize)?;
        Ok(configuration)
    }

    /// The `si_code` of the signal that stopped the thread. It says where the signal comes from.
    pub fn signal_code(self) -> Result<i32, Errno> {
        // `siginfo_t` has 128 bytes, and begins with the signal, an error number, and the code.
        let mut info = [0_i32; 32];
        self.request(PTRACE_GETSIGINFO, 0, info.as_mut_ptr() as usize)?;
        Ok(info[2])
    }

    /// Checks whether the thread has stopped or ended. This does not block.
    pub fn wait(self) -> Waited {
        let mut status = 0_i32;
        let args = [self.0 as usize, &raw mut status as usize, WNOHANG | WALL, 0, 0, 0];
        // SAFETY: the kernel writes `status`, which is borrowed for the call.
        match unsafe { call(number::WAIT4, args) } {
            Ok(0) => Waited::Nothing,
            Ok(pid) if pid == self.0 as usize && status & 0xff == 0x7f => Waited::Stopped(status),
            // Without WCONTINUED, any other status means that the thread has ended.
            _ => Waited::Gone,
        }
    }
}
