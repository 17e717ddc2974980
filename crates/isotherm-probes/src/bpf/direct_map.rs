//! Finds the kernel's direct map of physical memory, and proves that it is the right one.
//!
//! A page-table entry holds a physical address. To read the table at that address, the program must know where the
//! kernel maps physical address 0 (`page_offset_base`). The kernel does not export this address, but it is a multiple
//! of 1 GiB, and every page table lies in the direct map. The address is therefore the address of the top page table,
//! rounded down to 1 GiB, minus some number of GiB that is not larger than memory. All such numbers are tried. A
//! candidate is right if walks from addresses of this process end in the page frames that `/proc/self/pagemap` shows.
//! The probe reads page tables only after this proof.
//!
//! A try with a wrong candidate reads at wrong addresses. This is harmless for two reasons. The kernel handles a fault
//! of such a read (`bpf_probe_read_kernel`). And the addresses are at most the size of memory away from the direct map,
//! where the kernel keeps 10 TiB free.

use std::fs;

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

/// How many times the search is repeated. The kernel may move a page during a search, which makes it fail.
const ATTEMPTS: u32 = 3;

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

    let mut tried = 0;
    let mut leaves = Vec::new();
    for _ in 0..ATTEMPTS {
        let frames = frames(own, &lookups)?;
        for gib in 0..=memory_end / GIB {
            let Some(direct_map) = (own.pgd() & !(GIB - 1)).checked_sub(gib * GIB) else {
                break;
            };
            for levels in [4, 5] {
                let tables = PageTables { direct_map, address_mask, memory_end, levels };
                program.walk(&tables, lookups.iter().copied(), &mut leaves)?;
                tried += 1;
                if all_met(&lookups, &leaves, &frames) {
                    return Ok(tables);
                }
            }
        }
    }
    Err(BpfError::NoDirectMap { tried })
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

fn all_met(lookups: &[Lookup], leaves: &[Leaf], frames: &[u64]) -> bool {
    lookups.len() == leaves.len()
        && lookups.iter().zip(leaves).zip(frames).all(|((lookup, leaf), &frame)| {
            leaf.extent() == Some(Extent::Page) && leaf.frame(lookup.addr) == Some(frame)
        })
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
