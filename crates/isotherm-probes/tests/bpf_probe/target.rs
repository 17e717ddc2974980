//! A process to watch.
//!
//! The addresses in commands are those of answers, so they belong to memory that the process mapped for the test.
//! Nothing in the process refers to this memory.

#![allow(unsafe_code, reason = "the process maps memory at fixed addresses, and forks")]

#[path = "make_markers.rs"]
mod make_markers;

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use isotherm_testing::Served;
use rustix::mm::{Advice, MapFlags, MlockFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::mm::{madvise, mlock_with, mmap, mmap_anonymous, mprotect, mremap, munlock, munmap};

pub struct Target(Served);

impl Target {
    pub fn start() -> Self {
        Self(Served::start("target::serve"))
    }

    /// Maps `size` bytes. For `kind`, see the function `map`. The address is a multiple of 2 MiB.
    pub fn map(&mut self, kind: &str, size: u64) -> u64 {
        self.request(&format!("map {kind} {size}"))
    }

    /// Writes to every page of the range.
    pub fn write(&mut self, start: u64, size: u64) {
        self.request(&format!("write {start} {size}"));
    }

    /// Reads from every page of the range.
    pub fn read(&mut self, start: u64, size: u64) {
        self.request(&format!("read {start} {size}"));
    }
}

impl Deref for Target {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}

impl DerefMut for Target {
    fn deref_mut(&mut self) -> &mut Served {
        &mut self.0
    }
}

/// The target process runs this. An answer is an address, or 0.
#[test]
#[ignore = "the target processes of the other tests run it"]
fn serve() {
    isotherm_testing::or_skip!(isotherm_testing::serve(obey));
}

fn obey(command: &str) -> rustix::io::Result<u64> {
    let words: Vec<&str> = command.split(' ').collect();
    let number = |i: usize| words[i].parse::<usize>().unwrap();
    match words[0] {
        "map" => map(words[1], number(2)),
        // SAFETY: the range is memory that `map` returned. Nothing refers to it.
        "unmap" => unsafe { munmap(number(1) as *mut _, number(2)).map(|()| 0) },
        "register" => register(number(1), number(2)),
        // SAFETY: the range is memory that `map` returned. Nothing refers to what is in it.
        "free" => unsafe { madvise(number(1) as *mut _, number(2), Advice::LinuxFree).map(|()| 0) },
        // SAFETY: the range is memory that `map` returned.
        "unlock" => unsafe { munlock(number(1) as *mut _, number(2)).map(|()| 0) },
        "write" => Ok(touch(number(1), number(2), true)),
        "read" => Ok(touch(number(1), number(2), false)),
        "write-in-threads" => Ok(write_in_threads(number(1), number(2))),
        "protect" => protect(number(1), number(2), MprotectFlags::READ),
        "unprotect" => protect(number(1), number(2), MprotectFlags::READ | MprotectFlags::WRITE),
        "forbid" => protect(number(1), number(2), MprotectFlags::empty()),
        "stack" => Ok(use_stack()),
        "reserve" => reserve(words[1], number(2)),
        "again" => map_again(number(1), number(2)),
        "stripe" => Ok(stripe(number(1), number(2))),
        "fork-and-read" => Ok(fork_and_read(number(1), number(2))),
        // SAFETY: the range is memory that `map` returned. The advice changes no content.
        "merge" => unsafe { madvise(number(1) as *mut _, number(2), Advice::LinuxMergeable).map(|()| 0) },
        "marker" => Ok(make_markers::make(words[1], number(2), number(3))),
        "churn" => Ok(churn()),
        "exec" => panic!("exec failed: {}", exec()),
        _ => panic!("unknown command: {command}"),
    }
}

/// Registers memory with io_uring as a buffer. The ring stays open until the process ends.
fn register(start: usize, size: usize) -> rustix::io::Result<u64> {
    const SETUP: usize = 425;
    const REGISTER: usize = 427;
    const BUFFERS: usize = 0;
    let mut parameters = [0_u64; 15];
    let buffer = [start, size];
    // SAFETY: the kernel fills in the parameters, which have 120 bytes, and reads one buffer of an address and a
    // length.
    unsafe {
        let ring = syscall(SETUP, [8, parameters.as_mut_ptr() as usize, 0, 0])?;
        syscall(REGISTER, [ring, BUFFERS, buffer.as_ptr() as usize, 1]).map(|_| 0)
    }
}

/// Calls the kernel.
///
/// # Safety
/// As the call needs it.
unsafe fn syscall(number: usize, [a, b, c, d]: [usize; 4]) -> rustix::io::Result<usize> {
    let result: isize;
    // SAFETY: the registers are those of a system call of x86-64; the caller vouches for the arguments.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    usize::try_from(result).map_err(|_| rustix::io::Errno::from_raw_os_error(-result as i32))
}

fn protect(start: usize, size: usize, access: MprotectFlags) -> rustix::io::Result<u64> {
    // SAFETY: the range is memory that `map` returned. Nothing refers to it.
    unsafe { mprotect(start as *mut _, size, access) }.map(|()| 0)
}

/// Maps memory at an address that is a multiple of 2 MiB.
fn map(kind: &str, size: usize) -> rustix::io::Result<u64> {
    const BORDER: usize = 2 << 20;
    let (kind, path) = kind.split_once(':').unwrap_or((kind, ""));
    let flags = if kind.starts_with("shared") { MapFlags::SHARED } else { MapFlags::PRIVATE };
    let read_write = ProtFlags::READ | ProtFlags::WRITE;
    // The mapping is larger than needed. The rest stays inaccessible, so that the kernel does not merge mappings.
    // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other mapping.
    let place = unsafe {
        mmap_anonymous(ptr::null_mut(), size + 2 * BORDER, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
    };
    let start = (place as usize + 1).next_multiple_of(BORDER) as *mut _;
    // SAFETY: `start` is at most 2 MiB after `place`, so the range is in the mapping at `place`, which nothing refers
    // to. The advice and the lock do not change the content of memory.
    unsafe {
        match kind {
            "file" => {
                let file = OpenOptions::new().read(true).open(path).unwrap();
                mmap(start, size, ProtFlags::READ, MapFlags::SHARED | MapFlags::FIXED, file.as_fd(), 0)?;
            }
            "private-file" => {
                let file = OpenOptions::new().read(true).open(path).unwrap();
                mmap(start, size, read_write, MapFlags::PRIVATE | MapFlags::FIXED, file.as_fd(), 0)?;
            }
            "zero" => {
                let file = OpenOptions::new().read(true).write(true).open("/dev/zero").unwrap();
                mmap(start, size, read_write, MapFlags::SHARED | MapFlags::FIXED, file.as_fd(), 0)?;
            }
            "sysv" => attach(start, size)?,
            "hugetlb" | "shared-hugetlb" => {
                mmap_anonymous(start, size, read_write, flags | MapFlags::FIXED | MapFlags::HUGETLB)?;
            }
            _ => {
                mmap_anonymous(start, size, read_write, flags | MapFlags::FIXED)?;
            }
        }
        match kind {
            "huge" => madvise(start, size, Advice::LinuxHugepage)?,
            "small" | "shared" | "zero" => madvise(start, size, Advice::LinuxNoHugepage)?,
            "locked" => {
                madvise(start, size, Advice::LinuxNoHugepage)?;
                mlock_with(start, size, MlockFlags::empty())?;
            }
            _ => {}
        }
    }
    Ok(start as u64)
}

/// Attaches System V shared memory in place of a mapping. It goes with the process.
///
/// # Safety
/// Nothing refers to the mapping.
unsafe fn attach(start: *mut libc::c_void, size: usize) -> rustix::io::Result<()> {
    // SAFETY: the arguments are numbers, and an address at which the caller allows to replace what is mapped.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, size, 0o600);
        let at = libc::shmat(id, start, libc::SHM_REMAP);
        libc::shmctl(id, libc::IPC_RMID, ptr::null_mut());
        if at == start { Ok(()) } else { Err(rustix::io::Errno::INVAL) }
    }
}

/// Maps shared memory a second time, at a lower address or a higher one.
fn map_again(start: usize, size: usize) -> rustix::io::Result<u64> {
    // SAFETY: the kernel chooses the address of the new mapping. A mapping of which no byte is moved stays as it is.
    unsafe { mremap(start as *mut _, 0, size, MremapFlags::MAYMOVE).map(|start| start as u64) }
}

/// Reserves address space, with permission to read it or without any.
fn reserve(permission: &str, size: usize) -> rustix::io::Result<u64> {
    let permission = if permission == "read" { ProtFlags::READ } else { ProtFlags::empty() };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses the address, so that no other mapping is replaced.
    unsafe { mmap_anonymous(ptr::null_mut(), size, permission, flags).map(|start| start as u64) }
}

/// Makes every page of the range a mapping of its own, by turns writable and not.
fn stripe(start: usize, size: usize) -> u64 {
    for page in (start..start + size).step_by(2 * 4096) {
        // SAFETY: the test gives a range that it mapped before, and does not write to these pages afterwards.
        unsafe { mprotect(page as *mut _, 4096, MprotectFlags::READ).unwrap() };
    }
    0
}

fn touch(start: usize, size: usize, write: bool) -> u64 {
    for page in (start..start + size).step_by(4096) {
        let page = page as *mut u8;
        // A write does not read first: after a read, Linux 6.1 does not make a huge page of the memory.
        // SAFETY: the page is in memory that `map` returned, with this access. Threads that write to it at the same
        // time write to other pages.
        unsafe {
            if write {
                page.write_volatile(1);
            } else {
                page.read_volatile();
            }
        }
    }
    0
}

fn write_in_threads(start: usize, size: usize) -> u64 {
    std::thread::scope(|scope| {
        for i in 0..4 {
            scope.spawn(move || touch(start + i * size / 4, size / 4, true));
        }
    });
    0
}

/// Forks. The child reads the range and then waits until it is killed.
fn fork_and_read(start: usize, size: usize) -> u64 {
    let (mut done, writer) = io::pipe().unwrap();
    // Another thread may hold a lock at the time of the fork.
    // SAFETY: the child calls only functions that take no lock and do not allocate, and it never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the arguments are numbers, and a string of one byte.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            touch(start, size, false);
            libc::write(fd(writer.as_fd()), b"!".as_ptr().cast(), 1);
            loop {
                libc::pause();
            }
        }
    }
    done.read_exact(&mut [0]).unwrap();
    pid as u64
}

fn fd(fd: BorrowedFd<'_>) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&fd)
}

/// Starts a thread that has used 4 MiB of its stack.
fn use_stack() -> u64 {
    const USED: usize = 4 << 20;
    let (used, is_used) = std::sync::mpsc::channel();
    let deep = move || {
        std::hint::black_box(&mut [1_u8; USED]);
        used.send(()).unwrap();
        loop {
            std::thread::park();
        }
    };
    std::thread::Builder::new().stack_size(2 * USED).spawn(deep).unwrap();
    is_used.recv().unwrap();
    0
}

/// Starts a thread that maps, touches and unmaps memory at the same addresses forever. Returns the first address.
fn churn() -> u64 {
    const SIZE: usize = 8 << 20;
    let start = map("plain", SIZE).unwrap() as usize;
    std::thread::spawn(move || {
        for turn in 0.. {
            let (at, kind) = (start as *mut _, if turn % 3 == 0 { Advice::LinuxHugepage } else { Advice::Normal });
            // SAFETY: only this thread uses the range. The test accesses it from another process.
            unsafe {
                munmap(at, SIZE).unwrap();
                let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                mmap_anonymous(at, SIZE, ProtFlags::READ | ProtFlags::WRITE, flags).unwrap();
                madvise(at, SIZE, kind).unwrap();
            }
            touch(start, SIZE, true);
        }
    });
    start as u64
}

/// Executes this program again; the new process image serves commands in the same way.
fn exec() -> io::Error {
    Command::new(env::current_exe().unwrap()).args(env::args().skip(1)).exec()
}
