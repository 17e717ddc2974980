//! Finds the kernel's direct map of physical memory, and proves that it is the right one.
//!
//! A page-table entry holds a physical address. To read the table at that address, the program must know where the
//! kernel maps physical address 0. The kernel's variable `page_offset_base` says so. Kernels without
//! `CONFIG_KALLSYMS_ALL` do not list this symbol. Then two other kinds of addresses are tried: the addresses that the
//! architecture gives the map if it is not randomized, and those at which it may be randomized to. The map begins at a
//! multiple of 1 GiB, and every page table lies in it, so it begins at the address of the top page table, rounded down
//! to 1 GiB, minus some number of GiB that is not larger than memory.
//!
//! A candidate is right if walks from addresses of this process end in the page frames that `/proc/self/pagemap` shows.
//! The probe reads page tables only after this proof.
//!
//! A try with a wrong candidate reads at wrong addresses. This is harmless for three reasons. The kernel handles a
//! fault of such a read (`bpf_probe_read_kernel`). The lowest candidates are tried first, so that the addresses are in
//! the direct map or below it, where nothing is mapped. And where none of them is right, so that the search continues
//! above the right one, the kernel keeps 10 TiB free after the map, to plug in memory. Without that space, and without
//! the symbol, nothing is searched.

use std::fs;
use std::path::Path;

use isotherm_core::PAGE_SIZE;

use super::BpfError;
use super::leaf::{Extent, Leaf};
use super::program::{Lookup, PageTables, Program};
use super::space::SpaceHandle;
use isotherm_kernel::{HUGE, Scratch};

const GIB: u64 = 1 << 30;
const CPUINFO: &str = "/proc/cpuinfo";
const IOMEM: &str = "/proc/iomem";
const PRIVILEGE: &str = "run isotherm as root, or with CAP_SYS_ADMIN: the kernel hides physical addresses from others";

/// The number of pages of this process whose frames must match. Each page is mapped by another page table.
const WITNESSES: u64 = 16;

/// How many times a candidate is tried. The kernel may move a page during a walk, which then ends in another frame.
const ATTEMPTS: u32 = 5;

/// Where the direct map begins if it is not randomized, with four and with five levels of page tables
/// (Linux Documentation/arch/x86/x86_64/mm.rst).
const NOT_RANDOMIZED: [u64; 2] = [0xffff_8880_0000_0000, 0xff11_0000_0000_0000];

/// This directory exists if memory can be plugged in while the machine runs. Then the kernel keeps [`PADDING`] free
/// after the direct map (`CONFIG_RANDOMIZE_MEMORY_PHYSICAL_PADDING`).
const HOT_PLUG: &str = "/sys/devices/system/memory";
const PADDING: u64 = 10 << 40;

/// Finds out how to read this machine's page tables. `own` is the address space of this process.
pub(super) fn prove(program: &mut Program, own: &SpaceHandle) -> Result<PageTables, BpfError> {
    let address_mask = address_mask()?;
    let memory_end = memory_end()?;
    let scratch = Scratch::new(WITNESSES * HUGE)?;
    // This fails on a kernel without huge pages, which is harmless.
    let _ = scratch.huge(false);
    // One page in each 2 MiB, each at another index of its table.
    let lookups: Vec<Lookup> = (0..WITNESSES)
        .map(|i| i * HUGE + i * 31 % 512 * PAGE_SIZE)
        .inspect(|&offset| scratch.touch(offset))
        .map(|offset| Lookup { pgd: own.pgd(), addr: scratch.start() + offset })
        .collect();

    let candidates = candidates(program.direct_map()?, own.pgd(), memory_end, Path::new(HOT_PLUG).exists())?;
    let tries = candidates.iter().flat_map(|&direct_map| [4, 5].map(|levels| (direct_map, levels)));
    let mut leaves = Vec::new();
    for (direct_map, levels) in tries {
        let tables = PageTables { direct_map, address_mask, memory_end, levels };
        for _ in 0..ATTEMPTS {
            let frames = frames(own, &lookups)?;
            program.walk(&tables, lookups.iter().copied(), &mut leaves)?;
            match met(&lookups, &leaves, &frames) {
                WITNESSES => return Ok(tables),
                0 => break,
                // This is the right one. The kernel has moved a page meanwhile.
                1.. => {}
            }
        }
    }
    Err(BpfError::NoDirectMap { tried: candidates.len() })
}

/// The addresses at which the direct map may begin, in the order in which they are tried. `told` is what the kernel
/// says, `pgd` is the address of a top page table. `padded` says whether the kernel keeps [`PADDING`] free after the
/// map.
fn candidates(told: Option<u64>, pgd: u64, memory_end: u64, padded: bool) -> Result<Vec<u64>, BpfError> {
    let may_be = |start: &u64| pgd.checked_sub(*start).is_some_and(|distance| distance < memory_end);
    if let Some(told) = told {
        return Ok([told].into_iter().filter(may_be).collect());
    }
    let mut candidates: Vec<u64> = NOT_RANDOMIZED.into_iter().filter(may_be).collect();
    if padded && memory_end <= PADDING {
        let top = pgd & !(GIB - 1);
        candidates.extend((0..=memory_end / GIB).rev().filter_map(|gib| top.checked_sub(gib * GIB)).filter(may_be));
    }
    if candidates.is_empty() { Err(BpfError::HiddenDirectMap) } else { Ok(candidates) }
}

/// The frames of this process's pages, from pagemap.
fn frames(own: &SpaceHandle, lookups: &[Lookup]) -> Result<Vec<u64>, BpfError> {
    let silent = || BpfError::Silent { path: "/proc/self/pagemap", what: "page frame numbers", fix: PRIVILEGE };
    let frame = |lookup: &Lookup| {
        let entry = own.pagemap().entry(lookup.addr).map_err(BpfError::Table)?;
        let frame = entry.and_then(|entry| entry.frame()).filter(|&frame| frame != 0);
        frame.ok_or_else(silent)
    };
    lookups.iter().map(frame).collect()
}

/// How many walks ended in the right frame.
fn met(lookups: &[Lookup], leaves: &[Leaf], frames: &[u64]) -> u64 {
    let ends = lookups.iter().zip(leaves).zip(frames);
    let is_right = |((lookup, leaf), frame): &((&Lookup, &Leaf), &u64)| {
        leaf.extent() == Some(Extent::Page) && leaf.frame(lookup.addr) == Some(**frame)
    };
    ends.filter(is_right).count() as u64
}

/// The bits of a page-table entry that hold a physical address: as many bits as `/proc/cpuinfo` reports, without the
/// page offset. The bit that marks encrypted memory is not one of them.
fn address_mask() -> Result<u64, BpfError> {
    let bits = parse_address_bits(&read(CPUINFO, "is /proc mounted?")?);
    let bits = bits.ok_or(BpfError::Silent { path: CPUINFO, what: "address sizes", fix: "use another probe" })?;
    Ok(((1 << bits) - 1) & !(PAGE_SIZE - 1))
}

fn parse_address_bits(cpuinfo: &str) -> Option<u32> {
    let sizes = cpuinfo.lines().find_map(|line| line.strip_prefix("address sizes"))?;
    let bits = sizes.split_once(':')?.1.trim().split_once(" bits physical")?.0.parse().ok()?;
    // The limits of the x86-64 architecture.
    (32..=52).contains(&bits).then_some(bits)
}

/// The end of the machine's memory in bytes. It includes memory that was hot-plugged.
pub(super) fn memory_end() -> Result<u64, BpfError> {
    let end = parse_memory_end(&read(IOMEM, "is /proc mounted, and does isotherm run as root?")?);
    end.ok_or(BpfError::Silent { path: IOMEM, what: "the end of memory", fix: PRIVILEGE })
}

fn parse_memory_end(iomem: &str) -> Option<u64> {
    let ram = iomem.lines().filter(|line| line.contains("System RAM"));
    let ends = ram.filter_map(|line| {
        let (_, last) = line.split_once(" : ")?.0.split_once('-')?;
        u64::from_str_radix(last, 16).ok()
    });
    // The kernel shows all addresses as 0 to users without privilege.
    ends.max().filter(|&last| last > 0).map(|last| last + 1)
}

fn read(path: &'static str, fix: &'static str) -> Result<String, BpfError> {
    fs::read_to_string(path).map_err(|source| BpfError::File { path: path.into(), source, fix })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PGD: u64 = 0xffff_9d42_1234_5000;
    const MEMORY_END: u64 = 6 * GIB + (1 << 20);

    #[test]
    fn what_the_kernel_says_is_tried_and_nothing_else() {
        let told = PGD - 5 * GIB;
        assert_eq!(candidates(Some(told), PGD, MEMORY_END, false).unwrap(), [told]);
        let wrong = PGD - 7 * GIB;
        assert!(candidates(Some(wrong), PGD, MEMORY_END, true).unwrap().is_empty(), "the page table lies in the map");
    }

    #[test]
    fn without_the_symbol_the_lowest_addresses_are_tried_first() {
        let found = candidates(None, PGD, MEMORY_END, true).unwrap();
        let top = PGD & !(GIB - 1);
        assert_eq!(found, (0..=5).rev().map(|gib| top - gib * GIB).collect::<Vec<_>>());
        let fixed = NOT_RANDOMIZED[0] + (5 << 20);
        assert_eq!(candidates(None, fixed, MEMORY_END, false).unwrap(), [NOT_RANDOMIZED[0]]);
    }

    #[test]
    fn without_the_symbol_and_free_addresses_after_the_map_nothing_is_tried() {
        assert!(matches!(candidates(None, PGD, MEMORY_END, false), Err(BpfError::HiddenDirectMap)));
        assert!(matches!(candidates(None, PGD, PADDING + GIB, true), Err(BpfError::HiddenDirectMap)));
    }

    #[test]
    fn the_width_of_physical_addresses_is_read_from_cpuinfo() {
        assert_eq!(
            parse_address_bits("processor\t: 0\naddress sizes\t: 46 bits physical, 48 bits virtual\n"),
            Some(46)
        );
        assert_eq!(parse_address_bits("address sizes\t: 99 bits physical, 48 bits virtual\n"), None);
        assert_eq!(parse_address_bits("processor\t: 0\n"), None);
    }

    #[test]
    fn memory_ends_with_its_highest_range_in_any_order() {
        let iomem = "00001000-0009fbff : System RAM\n100000000-63fffffff : System RAM\n  \
                     5f0000000-5f1ffffff : Kernel code\n700000000-7ffffffff : dax0.0\n  \
                     700000000-7ffffffff : System RAM (kmem)\n";
        assert_eq!(parse_memory_end(iomem), Some(0x8_0000_0000));
        assert_eq!(parse_memory_end("00000000-00000000 : System RAM\n"), None);
        assert_eq!(parse_memory_end("00000000-00000000 : PCI Bus\n"), None);
    }
}
