//! The two instruction sequences of the target's own code that a call needs.

/// `syscall; ret`, which makes the system call.
pub(super) const CALL: &[u8] = &[0x0f, 0x05, 0xc3];

/// The encodings of `mov $15, %eax; syscall`, which is `rt_sigreturn`. Signal handlers return to it.
pub(super) const RESTORERS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];
