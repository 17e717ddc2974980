//! The kernel's events of one thread, through `perf_event_open(2)` and its ring buffer.
//!
//! The event is bound to the kdamond's thread, wherever it runs: so there is one ring, in which the events are in the order of their
//! making, and no other kdamond's are among them.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::TraceError;

/// The head of `struct perf_event_attr` as of Linux 3.19 (`PERF_ATTR_SIZE_VER3` without its last field): the kernel takes
/// any such length that it knows and reads the rest as zero.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
}

const _: () = assert!(size_of::<Attr>() == 96);

const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Where the words of `struct perf_event_mmap_page` lie.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// An event of one thread, and the ring that the kernel writes it to.
#[derive(Debug)]
pub(super) struct Ring {
    fd: OwnedFd,
    memory: NonNull<c_void>,
    page: usize,
    /// Bytes of data, a power of two.
    size: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Opens the tracepoint of this number for the thread `pid`, or for the calling thread with 0; events wait in `size`
    /// bytes, which become a power of two of pages.
    ///
    /// # Errors
    /// If the kernel has no perf events, does not allow them, or the thread is gone.
    pub(super) fn open(id: u64, pid: u32, size: usize) -> Result<Self, TraceError> {
        let attr = Attr {
            kind: PERF_TYPE_TRACEPOINT,
            size: size_of::<Attr>() as u32,
            config: id,
            // Every event is a sample.
            sample_period: 1,
            sample_type: PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
            flags: FLAG_USE_CLOCKID,
            clockid: libc::CLOCK_MONOTONIC,
            // Nobody is woken by events: they are collected at an aggregation's pace.
            wakeup_events: 0,
            ..Attr::default()
        };
        let any_cpu: libc::c_int = -1;
        let no_group: libc::c_int = -1;
        let pid = pid as libc::pid_t;
        // SAFETY: `attr` is a perf_event_attr of the length that it says, and lives over the call, which only reads it.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, any_cpu, no_group, PERF_FLAG_FD_CLOEXEC)
        };
        let Ok(fd @ 0..) = i32::try_from(fd) else {
            let error = std::io::Error::last_os_error();
            return Err(TraceError::Perf { source: Errno::from_io_error(&error).unwrap_or(Errno::IO) });
        };
        // SAFETY: the call has just made this descriptor, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };

        let page = rustix::param::page_size();
        let size = size.max(page).next_power_of_two();
        let mapped = page + size;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let memory =
            unsafe { mmap(ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0) };
        let memory = memory.and_then(|memory| NonNull::new(memory).ok_or(Errno::NOMEM));
        let memory = memory.map_err(|source| TraceError::Ring { bytes: mapped, source })?;
        Ok(Self { fd, memory, page, size })
    }

    /// Appends the events that have come since the last call to `bytes`, and makes room for others.
    pub(super) fn drain(&mut self, bytes: &mut Vec<u8>) {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        // The kernel never lets them be further apart than the ring is long.
        let ready = (head.wrapping_sub(tail) as usize).min(self.size);
        let at = tail as usize & (self.size - 1);
        let first = ready.min(self.size - at);
        for (offset, length) in [(at, first), (0, ready - first)] {
            // SAFETY: within the data, which begins one page into the mapping; the kernel does not write between tail and head, which
            // was read with acquire before, and nothing else here refers to it.
            bytes.extend_from_slice(unsafe {
                let data = self.memory.as_ptr().byte_add(self.page + offset).cast::<u8>();
                std::slice::from_raw_parts(data, length)
            });
        }
        self.word(DATA_TAIL).store(head, Ordering::Release);
    }

    /// Whether the thread has ended: no more events will come.
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in the first page of the mapping, which is as old as `self`, at a multiple of 8; the kernel and this value access
        // it as a whole only.
        unsafe { &*self.memory.as_ptr().byte_add(offset).cast::<AtomicU64>() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this size, and nothing points into it. A failure leaves memory behind, no more.
        let _ = unsafe { munmap(self.memory.as_ptr(), self.page + self.size) };
    }
}
