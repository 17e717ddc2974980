//! The frame that leads a thread back, whatever becomes of its tracer.
//!
//! A signal handler returns by `rt_sigreturn`, which takes all of a thread's registers from a frame on its stack. The
//! same frame is laid below the stack of a thread before it is given other registers for one system call. These are
//! chosen such that after the call, if nobody intervenes, it comes to `rt_sigreturn` and so back to where it was.
//!
//! The layout is the kernel's interface to user space: `asm/sigcontext.h` and `asm/ucontext.h` of x86-64.

use super::ptrace::Registers;

/// Below the stack pointer, a function may use so many bytes without saying so (System V ABI, "The Stack Frame").
const RED_ZONE: u64 = 128;

/// The return address and the context.
const CONTEXT: usize = 8 + 304;

/// What the vector registers' image is aligned to.
const VECTOR_ALIGNMENT: u64 = 64;

/// So much is needed below the stack pointer, at most, for vector registers of this size; and a page more, for what
/// signal handlers need until then.
pub(super) const fn room(vector_size: usize) -> u64 {
    RED_ZONE + vector_size as u64 + 4 + VECTOR_ALIGNMENT + CONTEXT as u64 + 16 + 4096
}

// Flags of a context: the vector registers are an XSAVE image, and the stack segment is to be restored as it is.
const CONTEXT_FLAGS: u64 = 1 | 2 | 4;
/// No mode of an alternate stack: the kernel then leaves the one that is set as it is.
const NO_SUCH_STACK_MODE: u64 = 0x7f;
const FXSAVE_SOFTWARE: usize = 464;
const SMALLEST_XSAVE: usize = 576;
const XSTATE_MAGIC1: u32 = 0x4650_5853;
const XSTATE_MAGIC2: u32 = 0x4650_5845;

// What an interrupted system call returns to the kernel's signal code; `linux/errno.h`.
pub(super) const ERESTARTSYS: i64 = -512;
pub(super) const ERESTARTNOINTR: i64 = -513;
pub(super) const ERESTARTNOHAND: i64 = -514;
pub(super) const ERESTART_RESTARTBLOCK: i64 = -516;
pub(super) const EINTR: i64 = -4;

/// A frame, ready to be written.
#[derive(Debug)]
pub(super) struct Frame {
    /// Where its context is to lie: what the stack pointer must be.
    pub at: u64,
    /// The context, to be written at `at`.
    pub context: [u8; CONTEXT],
    /// Where the vector registers' image is to lie.
    pub vector_at: u64,
}

/// The frame that leads a thread with these registers back; `vector` is its XSAVE image, with four bytes of room after
/// it,
/// and is made ready to be written, too. Nothing if the image is none.
pub(super) fn lay(registers: &Registers, blocked: u64, vector: &mut [u8], restorer: u64) -> Option<Frame> {
    let size = vector.len().checked_sub(4).filter(|size| *size >= SMALLEST_XSAVE)?;
    // The kernel tells a tracer which features there are at the place where a frame's description goes.
    let features: [u8; 8] = vector[FXSAVE_SOFTWARE..].first_chunk().copied()?;
    let mut software = [0; 48];
    software[0..4].copy_from_slice(&XSTATE_MAGIC1.to_le_bytes());
    software[4..8].copy_from_slice(&(size as u32 + 4).to_le_bytes());
    software[8..16].copy_from_slice(&features);
    software[16..20].copy_from_slice(&(size as u32).to_le_bytes());
    vector[FXSAVE_SOFTWARE..FXSAVE_SOFTWARE + 48].copy_from_slice(&software);
    vector[size..].copy_from_slice(&XSTATE_MAGIC2.to_le_bytes());

    let vector_at = registers.rsp.checked_sub(RED_ZONE + vector.len() as u64)? / VECTOR_ALIGNMENT * VECTOR_ALIGNMENT;
    // As at the first instruction of a signal handler: a multiple of 16, and 8.
    let at = vector_at.checked_sub(CONTEXT as u64)? / 16 * 16 - 8;

    let back = led_back(registers);
    let words = [
        restorer,
        CONTEXT_FLAGS,
        0,
        0,
        NO_SUCH_STACK_MODE,
        0,
        back.r8,
        back.r9,
        back.r10,
        back.r11,
        back.r12,
        back.r13,
        back.r14,
        back.r15,
        back.rdi,
        back.rsi,
        back.rbp,
        back.rbx,
        back.rdx,
        back.rax,
        back.rcx,
        back.rsp,
        back.rip,
        back.eflags,
        // The segments: code, two that are not used, and stack.
        back.cs & 0xffff | back.ss << 48,
        0,
        0,
        0,
        0,
        vector_at,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        blocked,
    ];
    let mut context = [0; CONTEXT];
    for (bytes, word) in context.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    Some(Frame { at, context, vector_at })
}

/// The registers with which a thread goes on by itself: a system call that was interrupted begins again.
///
/// One that the kernel would resume (a sleep that has its end) cannot be resumed after `rt_sigreturn`, and returns
/// `EINTR`,
/// as it does after a signal handler.
fn led_back(registers: &Registers) -> Registers {
    let mut back = *registers;
    if is_in_call(registers) {
        match registers.rax as i64 {
            ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => {
                back.rax = registers.orig_rax;
                // The length of the instruction.
                back.rip = registers.rip.wrapping_sub(2);
            }
            ERESTART_RESTARTBLOCK => back.rax = EINTR as u64,
            _ => {}
        }
    }
    back
}

/// Whether the thread was stopped on its way out of a system call.
pub(super) fn is_in_call(registers: &Registers) -> bool {
    // The kernel keeps the number in 32 bits.
    registers.orig_rax as i32 >= 0
}
