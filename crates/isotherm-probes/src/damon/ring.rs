//! Reads the events of one thread from the ring buffer of `perf_event_open(2)`.
//!
//! The event is bound to the thread of the kdamond, on any processor. So there is one ring buffer, its events are in
//! chronological order, and it contains no events of other kdamonds.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::TraceError;

/// The first 96 bytes of `struct perf_event_attr` (`PERF_ATTR_SIZE_VER3`, Linux 3.7, whose last field is `clockid`
/// since Linux 4.1). The kernel treats the missing fields as zero.
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

/// The offsets of fields of `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// An open event of one thread, and its ring buffer.
#[derive(Debug)]
pub(super) struct Ring {
    fd: OwnedFd,
    memory: NonNull<c_void>,
    page: usize,
    /// The size of the data in bytes, a power of two.
    size: usize,
}

// SAFETY: only this value uses the mapping, and the mapping is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Opens the tracepoint with the number `id` for the thread `pid`, or for the calling thread if `pid` is 0. The
    /// ring buffer has at least `size` bytes, rounded up to a power of two and to a page.
    ///
    /// # Errors
    /// Fails if the kernel has no perf events or does not permit them, or if the thread has ended.
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
            // No thread waits for events. The run collects them at regular intervals.
            wakeup_events: 0,
            ..Attr::default()
        };
        let any_cpu: libc::c_int = -1;
        let no_group: libc::c_int = -1;
        let pid = pid as libc::pid_t;
        // SAFETY: `attr` is a perf_event_attr whose `size` is correct. It is valid during the call, which only reads
        // it.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, any_cpu, no_group, PERF_FLAG_FD_CLOEXEC)
        };
        let Ok(fd @ 0..) = i32::try_from(fd) else {
            let error = std::io::Error::last_os_error();
            return Err(TraceError::Perf { source: Errno::from_io_error(&error).unwrap_or(Errno::IO) });
        };
        // SAFETY: the call has just opened this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };

        let page = rustix::param::page_size();
        let size = size.max(page).next_power_of_two();
        let mapped = page + size;
        // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other mapping.
        let memory =
            unsafe { mmap(ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0) };
        let memory = memory.and_then(|memory| NonNull::new(memory).ok_or(Errno::NOMEM));
        let memory = memory.map_err(|source| TraceError::Ring { bytes: mapped, source })?;
        Ok(Self { fd, memory, page, size })
    }

    /// Appends the records since the last call to `bytes` and frees their space in the ring buffer.
    pub(super) fn drain(&mut self, bytes: &mut Vec<u8>) {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        // The kernel keeps this difference within the size of the ring buffer.
        let ready = (head.wrapping_sub(tail) as usize).min(self.size);
        let at = tail as usize & (self.size - 1);
        let first = ready.min(self.size - at);
        for (offset, length) in [(at, first), (0, ready - first)] {
            // SAFETY: the range is in the data, which starts one page after the start of the mapping. The kernel does
            // not write between the tail and the head, which was read with acquire. No other reference to the data
            // exists.
            bytes.extend_from_slice(unsafe {
                let data = self.memory.as_ptr().byte_add(self.page + offset).cast::<u8>();
                std::slice::from_raw_parts(data, length)
            });
        }
        self.word(DATA_TAIL).store(head, Ordering::Release);
    }

    /// Whether the thread has ended. No more events follow then.
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the word is in the first page of the mapping, which exists as long as `self`. `offset` is a multiple
        // of 8. The kernel and this value access the word only as a whole.
        unsafe { &*self.memory.as_ptr().byte_add(offset).cast::<AtomicU64>() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `open` mapped the memory with this size, and no pointer to it is left. A failure only leaks the
        // memory.
        let _ = unsafe { munmap(self.memory.as_ptr(), self.page + self.size) };
    }
}
