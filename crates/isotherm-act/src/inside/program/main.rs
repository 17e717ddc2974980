//! The helper: a small program that does the tracing, so that the death of isotherm interrupts no call.
//!
//! `build.rs` compiles it without the standard library, and isotherm executes it from memory. So it has one thread,
//! allocates nothing, takes no lock, and a panic ends it at once. It is in a session of its own, blocks all signals,
//! and closes all files except its end of a socket. When isotherm ends, the socket is closed; the helper completes the
//! calls in progress and ends. If the helper itself dies, the kernel detaches the thread, and the frame restores the
//! registers of the thread (see `frame`). A watchdog kills the helper if a thread is traced for too long, whatever the
//! helper is doing.

#![no_std]
#![no_main]
#![allow(dead_code, reason = "the library uses the rest of some modules")]

#[path = "../code.rs"]
mod code;
mod frame;
#[path = "../message.rs"]
mod message;
mod ptrace;
mod status;
mod step;
mod sys;
mod tracer;

use core::arch::{asm, global_asm};
use core::time::Duration;

use message::{Plain, Reply, Request};
use ptrace::VECTOR_BUFFER;
use sys::{Errno, Watchdog, call, call_by_value, exit, number};
use tracer::{Failure, Files, make_calls};

/// For how long a thread may be traced for one request. The limits of the tracer are shorter in all.
const LONGEST: Duration = Duration::from_secs(1);

/// isotherm's end of the socket is the standard input.
const SOCKET: usize = 0;

global_asm!(
    ".globl _start",
    "_start:",
    "xor %ebp, %ebp",
    "and $-16, %rsp",
    "call {main}",
    "ud2",
    main = sym main,
    options(att_syntax)
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(101)
}

extern "C" fn main() -> ! {
    const SIG_SETMASK: usize = 2;
    const PR_SET_NAME: usize = 15;
    let all = u64::MAX;
    // SAFETY: the kernel reads `all` and the name, which is a string that ends with 0.
    unsafe {
        let _ = call(number::RT_SIGPROCMASK, [SIG_SETMASK, &raw const all as usize, 0, size_of_val(&all), 0, 0]);
        let _ = call(number::PRCTL, [PR_SET_NAME, c"isotherm-inside".as_ptr() as usize, 0, 0, 0, 0]);
    }
    let _ = call_by_value(number::SETSID, [0; 3]);
    let _ = call_by_value(number::CLOSE_RANGE, [SOCKET + 1, u32::MAX as usize, 0]);
    let Some(watchdog) = Watchdog::new() else { exit(1) };
    let mut vector = [0; VECTOR_BUFFER];
    let mut request = Request::zero();
    while let Some(fds) = receive(&mut request) {
        let mut reply = Reply::zero();
        let files = Files { memory: fds[0], status: fds[1] };
        watchdog.set(Some(LONGEST));
        let made = make_calls(&request, files, &mut vector, &mut reply);
        match made {
            Ok(()) => {}
            Err(Failure::Detached(why, errno)) => {
                reply.refused = why as u64;
                reply.errno = errno.unsigned_abs().into();
            }
            Err(Failure::Attached(why)) => {
                reply.refused = why as u64;
                reply.ends = 1;
            }
        }
        send(&reply);
        if reply.ends != 0 {
            break;
        }
        watchdog.set(None);
        for fd in fds {
            let _ = call_by_value(number::CLOSE, [fd as usize, 0, 0]);
        }
    }
    exit(0)
}

/// `struct iovec`.
#[repr(C)]
struct Vector {
    base: usize,
    length: usize,
}

/// `struct msghdr`.
#[repr(C)]
struct Header {
    name: usize,
    name_length: usize,
    vector: usize,
    vector_count: usize,
    control: usize,
    control_length: usize,
    flags: usize,
}

/// `struct cmsghdr` with two file descriptors.
#[repr(C)]
#[derive(Default)]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    fds: [i32; 2],
}

/// Receives the next request and its files. Returns `None` if isotherm has ended.
fn receive(request: &mut Request) -> Option<[i32; 2]> {
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    let mut control = Control::default();
    let bytes = request.bytes_mut();
    let vector = Vector { base: bytes.as_mut_ptr() as usize, length: bytes.len() };
    let header = Header {
        name: 0,
        name_length: 0,
        vector: &raw const vector as usize,
        vector_count: 1,
        control: &raw mut control as usize,
        control_length: size_of::<Control>(),
        flags: 0,
    };
    let length = loop {
        // SAFETY: the kernel writes the message and its control data to `request` and `control`, which the header
        // describes and which are borrowed for the call.
        match unsafe { call(number::RECVMSG, [SOCKET, &raw const header as usize, MSG_CMSG_CLOEXEC, 0, 0, 0]) } {
            Err(Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    let has_files = (control.length, control.level, control.kind) == (size_of::<Control>(), SOL_SOCKET, SCM_RIGHTS);
    (length == size_of::<Request>() && has_files).then_some(control.fds)
}

fn send(reply: &Reply) {
    const MSG_NOSIGNAL: usize = 0x4000;
    let bytes = reply.bytes();
    let args = [SOCKET, bytes.as_ptr() as usize, bytes.len(), MSG_NOSIGNAL, 0, 0];
    // This fails if isotherm has ended. Then nobody needs the reply.
    // SAFETY: the kernel reads the bytes, which are borrowed for the call.
    let _ = unsafe { call(number::SENDTO, args) };
}

// The compiler calls these functions, which the C library has elsewhere.

/// # Safety
/// As of memcpy(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that both ranges are valid.
    unsafe {
        asm!("rep movsb", inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As of memset(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that the range is valid.
    unsafe {
        asm!("rep stosb", inout("rcx") length => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As of memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
    for at in 0..length {
        // SAFETY: the caller guarantees that both ranges have `length` bytes. The reads are volatile, so that the
        // compiler does not make this loop a call of memcmp.
        let (a, b) = unsafe { (a.add(at).read_volatile(), b.add(at).read_volatile()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// # Safety
/// As of bcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
    // SAFETY: the caller guarantees the same as for `memcmp`.
    unsafe { memcmp(a, b, length) }
}

// The core library refers to these functions, which unwind a stack. No stack is unwound: a panic ends the program.

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    exit(102)
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit(102)
}
