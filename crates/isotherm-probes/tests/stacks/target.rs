//! A process that maps memory from functions with known names.

#![allow(unsafe_code, reason = "the process maps memory, and executes code that it has made")]

use std::convert::Infallible;
use std::fs;
use std::hint::black_box;
use std::ptr;

use isotherm_testing::Served;

/// What the target maps, in bytes.
const SIZE: usize = 4 << 20;

pub struct Target(Served);

impl Target {
    pub fn start() -> Self {
        Self(Served::start("target::serve"))
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Sends a command and waits until it is done. The answer is the address that was mapped.
    pub fn request(&mut self, command: &str) -> u64 {
        self.0.request(command)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.0.kill();
        let _ = fs::remove_file(perf_map(self.pid()));
    }
}

/// The file of names of the code that a process has made.
fn perf_map(pid: u32) -> String {
    format!("/tmp/perf-{pid}.map")
}

/// The target process runs this.
#[test]
#[ignore = "the target processes of the other tests run it"]
fn serve() {
    isotherm_testing::or_skip!(isotherm_testing::serve(|command| Ok::<_, Infallible>(obey(command) as u64)));
}

// Each function does something after its call, so that the call is no jump.

#[inline(never)]
fn obey(command: &str) -> usize {
    black_box(match command {
        "mmap" => table_insert(),
        "malloc" => buffer_new(),
        "brk" => heap_grow(),
        "mremap" => table_double(),
        "jit" => run_jit(),
        other => panic!("the target does not know {other}"),
    })
}

#[inline(never)]
fn table_insert() -> usize {
    black_box(table_grow())
}

#[inline(never)]
fn table_grow() -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses does not overlap other memory.
    black_box(unsafe { libc::mmap(ptr::null_mut(), SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }) as usize
}

#[inline(never)]
fn buffer_new() -> usize {
    // SAFETY: nothing uses the memory.
    black_box(unsafe { libc::malloc(SIZE) }) as usize
}

#[inline(never)]
fn heap_grow() -> usize {
    // SAFETY: nothing else in the process moves the end of the heap now, and nothing uses the memory.
    black_box(unsafe { libc::sbrk(SIZE as isize) }) as usize
}

#[inline(never)]
fn table_double() -> usize {
    let table = table_grow() as *mut libc::c_void;
    // SAFETY: nothing refers to the table.
    black_box(unsafe { libc::mremap(table, SIZE, 2 * SIZE, libc::MREMAP_MAYMOVE) }) as usize
}

/// A function with a frame pointer that maps 2 MiB: mmap(0, SIZE, READ | WRITE, PRIVATE | ANONYMOUS, -1, 0).
const JIT: [u8; 44] = [
    0x55, 0x48, 0x89, 0xe5, 0x31, 0xff, 0xbe, 0x00, 0x00, 0x20, 0x00, 0xba, 0x03, 0x00, 0x00, 0x00, 0x41, 0xba, 0x22,
    0x00, 0x00, 0x00, 0x49, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, 0x45, 0x31, 0xc9, 0xb8, 0x09, 0x00, 0x00, 0x00, 0x0f,
    0x05, 0x5d, 0xc3, 0x90, 0x90, 0x90,
];

#[inline(never)]
fn run_jit() -> usize {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, libc::MAP_PRIVATE);
    // SAFETY: the mapping is new and large enough. Its code keeps to the calling convention.
    unsafe {
        let code = libc::mmap(ptr::null_mut(), 4096, protection, flags | libc::MAP_ANONYMOUS, -1, 0);
        ptr::copy_nonoverlapping(JIT.as_ptr(), code.cast(), JIT.len());
        let name = format!("{:x} {:x} LazyCompile:*grow app.js:7\n", code as usize, JIT.len());
        fs::write(perf_map(std::process::id()), name).unwrap();
        let function: extern "C" fn() -> usize = std::mem::transmute(code);
        black_box(function())
    }
}
