//! The signal frame that restores the registers of a thread if its tracer dies.
//!
//! A signal handler returns with `rt_sigreturn(2)`, which loads all registers of the thread from a frame on its stack.
//! The tracer writes such a frame below the stack of the thread before it changes the registers for a system call. The
//! changed registers make the thread execute `rt_sigreturn` after the call, unless the tracer intervenes. So the thread
//! returns to the instruction at which it was stopped.
//!
//! The layout is an interface of the kernel: `asm/sigcontext.h` and `asm/ucontext.h` of x86-64.

use super::ptrace::Registers;

/// The number of bytes below the stack pointer that a function may use (System V ABI, "The Stack Frame").
const RED_ZONE: u64 = 128;

/// The size of the return address and the context, in bytes.
const CONTEXT: usize = 8 + 304;

/// The alignment of the image of the vector registers, in bytes.
const VECTOR_ALIGNMENT: u64 = 64;

/// The maximum number of bytes that a frame needs below the stack pointer. `vector_size` is the size of the vector
/// registers. One page of it is for signal handlers that run before the frame is written.
pub(super) const fn max_size(vector_size: usize) -> u64 {
    RED_ZONE + vector_size as u64 + 4 + VECTOR_ALIGNMENT + CONTEXT as u64 + 16 + 4096
}

// The flags of the context: the vector registers are an XSAVE image, and the stack segment is restored as it was.
const CONTEXT_FLAGS: u64 = 1 | 2 | 4;
/// An invalid mode of the alternate signal stack, with which the kernel leaves the current one unchanged.
const INVALID_STACK_MODE: u64 = 0x7f;
const FXSAVE_SOFTWARE: usize = 464;
const SMALLEST_XSAVE: usize = 576;
const XSTATE_MAGIC1: u32 = 0x4650_5853;
const XSTATE_MAGIC2: u32 = 0x4650_5845;

// The results of interrupted system calls inside the kernel; see `linux/errno.h`.
pub(super) const ERESTARTSYS: i64 = -512;
pub(super) const ERESTARTNOINTR: i64 = -513;
pub(super) const ERESTARTNOHAND: i64 = -514;
pub(super) const ERESTART_RESTARTBLOCK: i64 = -516;
pub(super) const EINTR: i64 = -4;

/// A frame that is ready to be written to the stack.
#[derive(Debug)]
pub(super) struct Frame {
    /// The address of the context. The stack pointer must have this value during the call.
    pub at: u64,
    /// The context, which belongs at address `at`.
    pub context: [u8; CONTEXT],
    /// The address of the image of the vector registers.
    pub vector_at: u64,
}

/// Builds the frame that restores `registers` and the mask of blocked signals. `restorer` is the address of
/// `rt_sigreturn`. `vector` is the XSAVE image of the thread, followed by 4 unused bytes; it is changed to the image
/// that belongs in the frame. Returns `None` if the image or the stack pointer is too small.
pub(super) fn build(registers: &Registers, blocked: u64, vector: &mut [u8], restorer: u64) -> Option<Frame> {
    let size = vector.len().checked_sub(4).filter(|size| *size >= SMALLEST_XSAVE)?;
    // In the image for a tracer, the kernel writes the feature mask where a frame has its own description.
    let features: [u8; 8] = vector[FXSAVE_SOFTWARE..].first_chunk().copied()?;
    let mut software = [0; 48];
    software[0..4].copy_from_slice(&XSTATE_MAGIC1.to_le_bytes());
    software[4..8].copy_from_slice(&(size as u32 + 4).to_le_bytes());
    software[8..16].copy_from_slice(&features);
    software[16..20].copy_from_slice(&(size as u32).to_le_bytes());
    vector[FXSAVE_SOFTWARE..FXSAVE_SOFTWARE + 48].copy_from_slice(&software);
    vector[size..].copy_from_slice(&XSTATE_MAGIC2.to_le_bytes());

    let vector_at = registers.rsp.checked_sub(RED_ZONE + vector.len() as u64)? / VECTOR_ALIGNMENT * VECTOR_ALIGNMENT;
    // The same alignment as at the first instruction of a signal handler: 8 more than a multiple of 16.
    let at = vector_at.checked_sub(CONTEXT as u64)? / 16 * 16 - 8;

    let back = after_interruption(registers);
    let words = [
        restorer,
        CONTEXT_FLAGS,
        0,
        0,
        INVALID_STACK_MODE,
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

/// The registers with which the thread continues after `rt_sigreturn`. An interrupted system call is restarted.
///
/// The kernel cannot resume a call with a restart block, such as a sleep, after `rt_sigreturn`. Such a call returns
/// `EINTR`, as after a signal handler.
fn after_interruption(registers: &Registers) -> Registers {
    let mut back = *registers;
    if is_in_call(registers) {
        match registers.rax as i64 {
            ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => {
                back.rax = registers.orig_rax;
                // The `syscall` instruction is 2 bytes long.
                back.rip = registers.rip.wrapping_sub(2);
            }
            ERESTART_RESTARTBLOCK => back.rax = EINTR as u64,
            _ => {}
        }
    }
    back
}

/// Whether the thread was stopped at the end of a system call.
pub(super) fn is_in_call(registers: &Registers) -> bool {
    // The kernel stores the number of the call in 32 bits.
    registers.orig_rax as i32 >= 0
}
