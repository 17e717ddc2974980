//! Loads the eBPF program with libbpf, and runs it.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use isotherm_kernel::in_another_user_namespace;
use isotherm_kernel::pages::Pagemap;
use isotherm_kernel::scheduling::pause;
use libbpf_rs::{ErrorKind, MapCore, Object, ObjectBuilder, PrintLevel, ProgramInput};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::CapabilitySet;

use super::BpfError;
use super::leaf::Leaf;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/program.bpf.o"));
const BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// The number of samples in the program's map, which is the most that one run looks up, in 0.1 to 0.2 ms. On some
/// kernels, no other thread gets the processor during a run.
const MAX_SAMPLES: usize = 512;

/// The largest number of page tables that one run copies, in 0.05 to 0.15 ms.
pub(super) const MAX_TABLES: usize = 16;

/// The number of entries in a page table.
pub(super) const TABLE_ENTRIES: usize = 512;

/// The capability that the kernel requires to clear another process's memory.
pub(super) const SYS_NICE: &str = "CAP_SYS_NICE";

/// The text in libbpf's messages after which the verifier's log begins.
const VERIFIER_LOG: &str = "BEGIN PROG LOAD LOG --";

/// The largest number of lines of the verifier's log in an error.
const LOG_LINES: usize = 12;

/// How to read the page tables of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageTables {
    /// The address at which the kernel maps physical address 0.
    pub(super) direct_map: u64,
    /// The bits of an entry that hold a physical address.
    pub(super) address_mask: u64,
    /// The end of memory in bytes. Nothing is read at or above it.
    pub(super) memory_end: u64,
    /// The number of levels: 4 or 5.
    pub(super) levels: u32,
}

/// An address to look up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup {
    /// The kernel's address of the top page table; 0 for an address space that maps nothing.
    pub(super) pgd: u64,
    /// The address in the address space.
    pub(super) addr: u64,
}

/// The address space of an opened `/proc/PID/pagemap`. All fields are addresses in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The operations of the file, which identify its kind.
    pub(super) f_op: u64,
    /// The address space; 0 if the process has none.
    pub(super) mm: u64,
    /// The top page table.
    pub(super) pgd: u64,
    /// The address space of the calling process.
    pub(super) own_mm: u64,
}

/// `struct sample` of `program.bpf.c`.
#[repr(C)]
#[derive(Debug)]
struct Sample {
    pgd: u64,
    addr: u64,
    entry: u64,
}

/// `struct table_request` of `program.bpf.c`.
#[repr(C)]
#[derive(Debug)]
struct TableRequest {
    pgd: u64,
    addr: u64,
    level: u64,
    entry: u64,
}

/// The entries of a page table, as the processor reads them.
pub(super) type PageTable = [u64; TABLE_ENTRIES];

/// The result of the search for a page table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Walked<'a> {
    /// The table.
    Table(&'a PageTable),
    /// The entry of a higher table at which the walk ended; it may map nothing.
    Leaf(Leaf),
}

/// The program in the kernel, and the memory shared with it.
#[derive(Debug)]
pub(super) struct Program {
    object: Object,
    /// `MAX_SAMPLES` elements.
    samples: Shared<Sample>,
    /// `MAX_TABLES` elements, as in `tables`.
    requests: Shared<TableRequest>,
    tables: Shared<PageTable>,
}

/// The elements of one of the program's maps, mapped into this process.
#[derive(Debug)]
struct Shared<T> {
    memory: NonNull<T>,
    size: usize,
}

// SAFETY: only this value refers to the mapping, and the mapping is not bound to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// Maps the elements of the map `name`, which has `count` elements.
    fn map(object: &Object, name: &str, count: usize) -> Result<Self, BpfError> {
        let map = object.maps().find(|map| map.name() == name);
        let map = map.ok_or(BpfError::GaveUp { program: "walk", why: "it lacks one of its maps" })?;
        let size = count * size_of::<T>();
        // SAFETY: a new mapping at an address that the kernel chooses does not overlap other memory.
        let memory = unsafe {
            mmap(
                ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                map.as_fd(),
                0,
            )
        };
        let memory =
            memory.map_err(|e| BpfError::Memory { what: "mapping the eBPF program's memory", source: e.into() })?;
        let memory = NonNull::new(memory.cast());
        Ok(Self { memory: memory.ok_or(BpfError::GaveUp { program: "walk", why: "its map is at address 0" })?, size })
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this size, and nothing else points into it.
        // A failure is ignored: there is no way to handle it.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.size) };
    }
}

impl Program {
    /// Loads the program into the kernel.
    pub(super) fn load() -> Result<Self, BpfError> {
        let object = load_object(OBJECT, &[])?;
        let samples = Shared::map(&object, "samples", MAX_SAMPLES)?;
        let requests = Shared::map(&object, "table_requests", MAX_TABLES)?;
        let tables = Shared::map(&object, "page_tables", MAX_TABLES)?;
        Ok(Self { object, samples, requests, tables })
    }

    /// Makes all `lookups`, up to [`MAX_SAMPLES`] in one run, and puts their entries into `leaves`, in order.
    pub(super) fn walk(
        &mut self,
        tables: &PageTables,
        mut lookups: impl Iterator<Item = Lookup>,
        leaves: &mut Vec<Leaf>,
    ) -> Result<(), BpfError> {
        leaves.clear();
        loop {
            let mut count = 0;
            for Lookup { pgd, addr } in lookups.by_ref().take(MAX_SAMPLES) {
                // SAFETY: `count` is below MAX_SAMPLES, the number of elements, and no program runs now.
                unsafe { self.samples.memory.add(count).write(Sample { pgd, addr, entry: 0 }) };
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            let size = u64::from(tables.levels) | (count as u64) << 32;
            let mut args = [tables.direct_map, tables.address_mask, tables.memory_end, size];
            if self.run("walk", &mut args)? != 0 {
                return Err(BpfError::GaveUp { program: "walk", why: "it did not look up all samples" });
            }
            leaves.extend((0..count).map(|i| {
                // SAFETY: the elements are within the mapping, as above. The read is volatile because the kernel wrote
                // the elements, which the compiler does not know.
                Leaf(unsafe { (&raw const (*self.samples.memory.add(i).as_ptr()).entry).read_volatile() })
            }));
            if count < MAX_SAMPLES {
                return Ok(());
            }
        }
    }

    /// Copies the page tables of `level`, 1 to 5, for each of `addrs` in the address space of `pgd`. Calls `found` with
    /// each result, in order. There are at most [`MAX_TABLES`] addresses.
    pub(super) fn copy_tables(
        &mut self,
        how: &PageTables,
        pgd: u64,
        level: u64,
        addrs: &[u64],
        mut found: impl FnMut(usize, Walked<'_>),
    ) -> Result<(), BpfError> {
        assert!(addrs.len() <= MAX_TABLES);
        for (i, &addr) in addrs.iter().enumerate() {
            // SAFETY: `i` is below MAX_TABLES, the number of elements, and no program runs now.
            unsafe { self.requests.memory.add(i).write(TableRequest { pgd, addr, level, entry: 0 }) };
        }
        let size = u64::from(how.levels) | (addrs.len() as u64) << 32;
        let mut args = [how.direct_map, how.address_mask, how.memory_end, size];
        if self.run("copy_tables", &mut args)? != 0 {
            return Err(BpfError::GaveUp { program: "copy_tables", why: "it did not copy all tables" });
        }
        for i in 0..addrs.len() {
            // SAFETY: the element is within the mapping, as above. The read is volatile because the kernel wrote the
            // element, which the compiler does not know.
            let request = unsafe { self.requests.memory.add(i).as_ptr().read_volatile() };
            if request.level == level {
                // SAFETY: as above. Only a run of the program changes the element. None runs during the borrow, because
                // `self` is borrowed until then.
                let table = unsafe { self.tables.memory.add(i).as_ref() };
                found(i, Walked::Table(table));
            } else {
                found(i, Walked::Leaf(Leaf(request.entry)));
            }
        }
        Ok(())
    }

    /// The address space of the opened file `pagemap`.
    pub(super) fn resolve(&mut self, pagemap: &Pagemap) -> Result<Resolved, BpfError> {
        let mut args = [pagemap.as_fd().as_raw_fd() as u64, 0, 0, 0, 0];
        if self.run("resolve", &mut args)? != 0 {
            return Err(BpfError::GaveUp { program: "resolve", why: "it did not find an open file" });
        }
        let [_, f_op, mm, pgd, own_mm] = args;
        Ok(Resolved { f_op, mm, pgd, own_mm })
    }

    /// The address at which the kernel maps physical address 0, as its variable `page_offset_base` says. `None` if the
    /// kernel does not list the variable among its symbols, or hides it from this user.
    pub(super) fn direct_map(&mut self) -> Result<Option<u64>, BpfError> {
        let mut args = [0];
        self.run("direct_map", &mut args)?;
        Ok(Some(args[0]).filter(|&start| start != 0))
    }

    /// Runs the program `name` on `args`, which it may change, and returns its return value.
    fn run<const N: usize>(&mut self, name: &'static str, args: &mut [u64; N]) -> Result<u32, BpfError> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or(BpfError::GaveUp { program: name, why: "it is not in the object" })?;
        // SAFETY: `args` is borrowed for as long as the slice is, has no padding, and any bytes are a valid `u64`.
        let bytes = unsafe { std::slice::from_raw_parts_mut(args.as_mut_ptr().cast::<u8>(), size_of_val(args)) };
        let input = ProgramInput { context_in: Some(bytes), ..Default::default() };
        let output = program.test_run(input).map_err(|source| BpfError::Run { program: name, source })?;
        pause();
        Ok(output.return_value)
    }
}

/// Loads the eBPF programs of an object file into the kernel, but for those of these names.
pub(crate) fn load_object(object: &[u8], but: &[&str]) -> Result<Object, BpfError> {
    File::open(BTF).map_err(|source| BpfError::NoBtf { path: BTF, source })?;
    let (loaded, log) = with_log(|| {
        let mut object = ObjectBuilder::default().open_memory(object)?;
        let left_out = object.progs_mut().filter(|program| but.iter().any(|name| program.name() == *name));
        left_out.for_each(|mut program| program.set_autoload(false));
        object.load()
    });
    loaded.map_err(|source| load_error(source, &log))
}

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `load`. Collects the messages that libbpf prints on this thread instead of printing them.
fn with_log<T>(load: impl FnOnce() -> T) -> (T, String) {
    // libbpf has one print function for the whole process, so only one thread at a time may replace it.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);

    let before =
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| LOG.with_borrow_mut(|log| log.push_str(&line)))));
    LOG.with_borrow_mut(String::clear);
    let result = load();
    libbpf_rs::set_print(before);
    (result, LOG.take())
}

fn load_error(source: libbpf_rs::Error, log: &str) -> BpfError {
    let confidential = fs::read_to_string(LOCKDOWN).is_ok_and(|state| state.contains("[confidentiality]"));
    let missing = missing_capabilities();
    let fix = if confidential {
        format!("the kernel is locked down ({LOCKDOWN} is set to confidentiality), which forbids reading its memory")
    } else if source.kind() == ErrorKind::PermissionDenied && in_another_user_namespace() {
        "this process is in a user namespace of its own, as in a container; its capabilities do not count outside of \
         it: run isotherm in the first user namespace of the machine"
            .into()
    } else if !missing.is_empty() {
        format!("run isotherm as root: this process lacks {}", missing.join(", "))
    } else if source.kind() == ErrorKind::PermissionDenied && !log.contains(VERIFIER_LOG) {
        "this process has all needed capabilities, so a seccomp filter (of a container?) may forbid bpf()".into()
    } else if matches!(source.kind(), ErrorKind::OutOfMemory | ErrorKind::WouldBlock | ErrorKind::Interrupted) {
        "memory or another resource is short; try again, or raise the limits of this process".into()
    } else {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        format!("Linux 5.17 or later with CONFIG_BPF_SYSCALL is needed, and this is {kernel}")
    };
    // The messages before the verifier's log are about libbpf's own attempts: leave them out.
    let verifier = log.split_once(VERIFIER_LOG).map_or("", |(_, log)| log.trim_ascii());
    let verifier = verifier.split_once("-- END PROG LOAD LOG").map_or(verifier, |(log, _)| log.trim_ascii());
    let skipped = verifier.lines().count().saturating_sub(LOG_LINES);
    let log = verifier.lines().skip(skipped).map(|line| format!("\n  {line}")).collect();
    BpfError::Load { cause: isotherm_core::chain(&source), fix, log }
}

/// The needed capabilities that this process lacks.
pub(super) fn missing_capabilities() -> Vec<&'static str> {
    let Ok(sets) = rustix::thread::capabilities(None) else {
        return Vec::new();
    };
    let has = |capability| sets.effective.contains(capability);
    let all = has(CapabilitySet::SYS_ADMIN);
    let needed = [
        (all || has(CapabilitySet::BPF), "CAP_BPF"),
        (all || has(CapabilitySet::PERFMON), "CAP_PERFMON"),
        (all, "CAP_SYS_ADMIN (to read page frame numbers)"),
        (has(CapabilitySet::SYS_NICE), SYS_NICE),
    ];
    needed.into_iter().filter(|(has, _)| !has).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_shared_structures_have_the_sizes_that_the_program_expects() {
        assert_eq!(size_of::<Sample>(), 24);
        assert_eq!((size_of::<TableRequest>(), size_of::<PageTable>()), (32, 4096));
    }

    #[test]
    fn a_load_error_shows_the_end_of_the_verifiers_log() {
        let log = format!(
            "libbpf: prog 'walk': -- {VERIFIER_LOG}\n{}",
            (0..40).map(|i| format!("line {i}\n")).collect::<String>()
        );
        let shown = load_error(io::Error::from_raw_os_error(22).into(), &log).to_string();
        assert!(shown.contains("\n  line 39") && !shown.contains("line 27\n"), "{shown}");
    }
}
