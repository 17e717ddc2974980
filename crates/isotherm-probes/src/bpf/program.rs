//! The eBPF program: loaded by libbpf, and run on behalf of the rest.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use isotherm_kernel::pages::Pagemap;
use libbpf_rs::{ErrorKind, MapCore, Object, ObjectBuilder, PrintLevel, ProgramInput};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::CapabilitySet;

use super::BpfError;
use super::leaf::Leaf;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/program.bpf.o"));
const BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// How many samples the program's map holds: so many are looked up by one call.
const MAX_SAMPLES: usize = 16384;

/// How many whole page tables are copied by one call.
pub(super) const MAX_TABLES: usize = 64;

/// The entries of a page table.
pub(super) const TABLE_ENTRIES: usize = 512;

/// What the kernel wants of those who clear another process's memory.
pub(super) const SYS_NICE: &str = "CAP_SYS_NICE";

/// After this in libbpf's messages the verifier speaks.
const VERIFIER_LOG: &str = "BEGIN PROG LOAD LOG --";

/// How much of the verifier's log an error shows at most, in lines.
const LOG_LINES: usize = 12;

/// How the page tables of this machine are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageTables {
    /// The address at which the kernel maps physical address 0.
    pub(super) direct_map: u64,
    /// The bits of an entry that are a physical address.
    pub(super) address_mask: u64,
    /// The end of memory: nothing is read from there on.
    pub(super) memory_end: u64,
    /// 4 or 5.
    pub(super) levels: u32,
}

/// An address to be looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The kernel's address of the top page table; 0 maps nothing.
    pub(super) pgd: u64,
    /// The address in that address space.
    pub(super) addr: u64,
}

/// The address space that an opened `/proc/PID/pagemap` stands for. All are addresses in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// What kind of file it is.
    pub(super) f_op: u64,
    /// The address space; 0 if the process has none (any more).
    pub(super) mm: u64,
    /// Its top page table.
    pub(super) pgd: u64,
    /// The address space of the caller.
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

/// The entries of a page table, as the processor knows them.
pub(super) type PageTable = [u64; TABLE_ENTRIES];

/// What was found where a page table was looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    /// The table.
    Table(&'a PageTable),
    /// Something that a table above it maps as one; or nothing.
    Leaf(Leaf),
}

/// The program in the kernel, and the memory shared with it.
#[derive(Debug)]
pub(super) struct Program {
    object: Object,
    /// `MAX_SAMPLES` of them.
    samples: Shared<Sample>,
    /// `MAX_TABLES` of each.
    requests: Shared<TableRequest>,
    tables: Shared<PageTable>,
}

/// The elements of one of the program's maps, mapped into this process.
#[derive(Debug)]
struct Shared<T> {
    memory: NonNull<T>,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone, and is not bound to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// Maps the elements of the map `name`, which has `count` of them.
    fn map(object: &Object, name: &str, count: usize) -> Result<Self, BpfError> {
        let map = object.maps().find(|map| map.name() == name);
        let map = map.ok_or(BpfError::GaveUp { program: "walk", why: "it lacks one of its maps" })?;
        let size = count * size_of::<T>();
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
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
        // SAFETY: the mapping was made in `map` with this size and nothing else points into it.
        // There is nothing to be done about a failure.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.size) };
    }
}

impl Program {
    /// Loads the program.
    pub(super) fn load() -> Result<Self, BpfError> {
        File::open(BTF).map_err(|source| BpfError::NoBtf { path: BTF, source })?;
        let (loaded, log) = with_log(|| ObjectBuilder::default().open_memory(OBJECT)?.load());
        let object = loaded.map_err(|source| load_error(source, &log))?;
        let samples = Shared::map(&object, "samples", MAX_SAMPLES)?;
        let requests = Shared::map(&object, "table_requests", MAX_TABLES)?;
        let tables = Shared::map(&object, "page_tables", MAX_TABLES)?;
        Ok(Self { object, samples, requests, tables })
    }

    /// Looks up all `places`, in calls of up to [`MAX_SAMPLES`], and puts what they lead to into `leaves`, in order.
    pub(super) fn walk(
        &mut self,
        tables: &PageTables,
        mut places: impl Iterator<Item = Place>,
        leaves: &mut Vec<Leaf>,
    ) -> Result<(), BpfError> {
        leaves.clear();
        loop {
            let mut count = 0;
            for Place { pgd, addr } in places.by_ref().take(MAX_SAMPLES) {
                // SAFETY: `count` stays below MAX_SAMPLES, for which there is room; no program runs now.
                unsafe { self.samples.memory.add(count).write(Sample { pgd, addr, entry: 0 }) };
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            let size = u64::from(tables.levels) | (count as u64) << 32;
            let mut args = [tables.direct_map, tables.address_mask, tables.memory_end, size];
            if self.run("walk", &mut args)? != 0 {
                return Err(BpfError::GaveUp { program: "walk", why: "it did not get to the end of its samples" });
            }
            // SAFETY: within the mapping as above. The kernel wrote to it, which the compiler does not know of: so
            // the read is volatile.
            leaves.extend(
                (0..count).map(|i| {
                    Leaf(unsafe { (&raw const (*self.samples.memory.add(i).as_ptr()).entry).read_volatile() })
                }),
            );
            if count < MAX_SAMPLES {
                return Ok(());
            }
        }
    }

    /// Copies the page tables of this level, 1 or 2, at each of `addrs`, which are [`MAX_TABLES`] at most, in the address space of
    /// `pgd`, and hands over what was found, in order.
    pub(super) fn copy_tables(
        &mut self,
        how: &PageTables,
        pgd: u64,
        level: u64,
        addrs: &[u64],
        mut tell: impl FnMut(usize, Found<'_>),
    ) -> Result<(), BpfError> {
        assert!(addrs.len() <= MAX_TABLES);
        for (i, &addr) in addrs.iter().enumerate() {
            // SAFETY: `i` is below MAX_TABLES, for which there is room; no program runs now.
            unsafe { self.requests.memory.add(i).write(TableRequest { pgd, addr, level, entry: 0 }) };
        }
        let size = u64::from(how.levels) | (addrs.len() as u64) << 32;
        let mut args = [how.direct_map, how.address_mask, how.memory_end, size];
        if self.run("copy_tables", &mut args)? != 0 {
            return Err(BpfError::GaveUp { program: "copy_tables", why: "it did not get to the end of its tables" });
        }
        for i in 0..addrs.len() {
            // SAFETY: within the mapping as above. The kernel wrote to it, which the compiler does not know of: so the read is
            // volatile.
            let request = unsafe { self.requests.memory.add(i).as_ptr().read_volatile() };
            if request.level == level {
                // SAFETY: as above; the copy is this function's own.
                let table = unsafe { self.tables.memory.add(i).as_ptr().read_volatile() };
                tell(i, Found::Table(&table));
            } else {
                tell(i, Found::Leaf(Leaf(request.entry)));
            }
        }
        Ok(())
    }

    /// The address space that the opened file `pagemap` stands for.
    pub(super) fn resolve(&mut self, pagemap: &Pagemap) -> Result<Resolved, BpfError> {
        let mut args = [pagemap.as_fd().as_raw_fd() as u64, 0, 0, 0, 0];
        if self.run("resolve", &mut args)? != 0 {
            return Err(BpfError::GaveUp { program: "resolve", why: "it did not find an open file" });
        }
        let [_, f_op, mm, pgd, own_mm] = args;
        Ok(Resolved { f_op, mm, pgd, own_mm })
    }

    /// Runs the program of this name on `args`, which it may change, and gives its return value.
    fn run<const N: usize>(&mut self, name: &'static str, args: &mut [u64; N]) -> Result<u32, BpfError> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or(BpfError::GaveUp { program: name, why: "it is not in the object" })?;
        // SAFETY: `args` is borrowed for as long, has no padding, and any bytes make a `u64`.
        let bytes = unsafe { std::slice::from_raw_parts_mut(args.as_mut_ptr().cast::<u8>(), size_of_val(args)) };
        let input = ProgramInput { context_in: Some(bytes), ..Default::default() };
        let output = program.test_run(input).map_err(|source| BpfError::Run { program: name, source })?;
        Ok(output.return_value)
    }
}

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Does `load` with libbpf's messages of this thread caught instead of printed.
fn with_log<T>(load: impl FnOnce() -> T) -> (T, String) {
    // The print function is the process's, so that two loads at once must not take turns in setting it back.
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
    let mend = if confidential {
        format!("the kernel is locked down ({LOCKDOWN} says confidentiality), which forbids reading its memory")
    } else if !missing.is_empty() {
        format!("run isotherm as root: this process lacks {}", missing.join(", "))
    } else if source.kind() == ErrorKind::PermissionDenied && !log.contains(VERIFIER_LOG) {
        "all capabilities are there, so a seccomp filter (of a container?) may forbid bpf()".into()
    } else {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        format!("Linux 5.17 or later with CONFIG_BPF_SYSCALL is needed, and this is {kernel}")
    };
    // Without it, what libbpf says is about its own attempts.
    let verifier = log.split_once(VERIFIER_LOG).map_or("", |(_, log)| log.trim_ascii());
    let verifier = verifier.split_once("-- END PROG LOAD LOG").map_or(verifier, |(log, _)| log.trim_ascii());
    let skipped = verifier.lines().count().saturating_sub(LOG_LINES);
    let log = verifier.lines().skip(skipped).map(|line| format!("\n  {line}")).collect();
    BpfError::Load { source, mend, log }
}

/// What of the needed capabilities this process does not have.
pub(super) fn missing_capabilities() -> Vec<&'static str> {
    let Ok(sets) = rustix::thread::capabilities(None) else {
        return Vec::new();
    };
    let has = |capability| sets.effective.contains(capability);
    let all = has(CapabilitySet::SYS_ADMIN);
    let needed = [
        (all || has(CapabilitySet::BPF), "CAP_BPF"),
        (all || has(CapabilitySet::PERFMON), "CAP_PERFMON"),
        (all, "CAP_SYS_ADMIN (to be told page frames)"),
        (has(CapabilitySet::SYS_NICE), SYS_NICE),
    ];
    needed.into_iter().filter(|(has, _)| !has).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_shared_structures_have_the_size_that_the_program_expects() {
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
