//! The survey of physical memory through the page tables of processes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, PageBits, Survey, SurveyPart};
use isotherm_core::{AddressSpace, Observation, Sample, TargetId};
use isotherm_kernel::PhysicalMemory;
use isotherm_probes::bpf::{SharedLimits, SharedMemory};
use isotherm_probes::mapped::MappedProbe;

use crate::survey::nearly;
use crate::target::Target;
use crate::watch::*;

/// The probe, and a directory in which only the processes of the test are listed: clearing shared memory would disturb
/// others.
struct Machine {
    root: tempfile::TempDir,
    probe: MappedProbe,
    found: Vec<BlockPages>,
}

impl Machine {
    fn open(targets: &[&Target], shared: SharedMemory) -> Result<Self, &'static str> {
        drop(open()?);
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        let probe = MappedProbe::open_at(root.path(), shared, SharedLimits::default()).unwrap();
        let machine = Self { root, probe, found: Vec::new() };
        targets.iter().for_each(|target| machine.start(target.pid()));
        Ok(machine)
    }

    /// The machine has this process from now on.
    fn start(&self, pid: u32) {
        symlink(format!("/proc/{pid}"), self.root.path().join(format!("proc/{pid}"))).unwrap();
    }

    fn survey(&mut self) {
        let memory = PhysicalMemory::new([]).unwrap().read_targets().unwrap();
        Survey::begin(&mut self.probe).unwrap();
        self.found.clear();
        Survey::read(&mut self.probe, &memory[0], SurveyPart::ALL, &mut self.found).unwrap();
        assert!(self.found.windows(2).all(|pair| pair[0].start < pair[1].start), "sorted and merged");
        let has_pages = |block: &BlockPages| !(block.present | block.lazily_freed).is_empty();
        assert!(self.found.iter().all(|block| block.start % BLOCK_SIZE == 0 && has_pages(block)));
        for block in &self.found {
            assert_eq!(block.accessed & !block.present, PageBits::NONE);
            assert_eq!(block.shared & !block.accessed | block.unobservable & !block.present, PageBits::NONE);
        }
    }

    /// Clears all observable pages that the last survey has found accessed. Returns how many accessed bits that were,
    /// and the frames that the survey says are clear.
    fn clear(&mut self) -> (u64, BTreeSet<u64>) {
        let mut chosen = to_clear(&self.found);
        let bits = Survey::clear(&mut self.probe, TargetId::PhysicalMemory, &mut chosen).unwrap();
        assert!(chosen.windows(2).all(|pair| pair[0].start < pair[1].start), "sorted and merged");
        (bits, chosen.iter().flat_map(|block| frames_of(block.start, block.pages)).collect())
    }

    /// Surveys in parts of so many blocks, and clears all observable pages that are found accessed, each part after it
    /// was read. Returns what [`clear`](Self::clear) returns, and how many parts there were without a block.
    fn survey_in_parts(&mut self, most: usize) -> (u64, BTreeSet<u64>, usize) {
        let memory = PhysicalMemory::new([]).unwrap().read_targets().unwrap();
        self.probe.set_parts_above(0);
        Survey::begin(&mut self.probe).unwrap();
        self.found.clear();
        let (mut bits, mut cleared, mut empty, mut from) = (0, BTreeSet::new(), 0, 0);
        loop {
            let mut blocks = Vec::new();
            let rest = Survey::read(&mut self.probe, &memory[0], SurveyPart { from, most }, &mut blocks).unwrap();
            assert!(blocks.len() <= most && blocks.iter().all(|block| block.start >= from));
            empty += usize::from(blocks.is_empty());
            let mut chosen = to_clear(&blocks);
            bits += Survey::clear(&mut self.probe, TargetId::PhysicalMemory, &mut chosen).unwrap();
            cleared.extend(chosen.iter().flat_map(|block| frames_of(block.start, block.pages)));
            self.found.extend(blocks);
            match rest.from {
                Some(next) => from = next,
                None => break,
            }
        }
        assert!(self.found.windows(2).all(|pair| pair[0].start < pair[1].start), "sorted and merged");
        (bits, cleared, empty)
    }

    /// The frames for which `of` is set.
    fn frames(&self, of: impl Fn(&BlockPages) -> PageBits) -> BTreeSet<u64> {
        self.found.iter().flat_map(|block| frames_of(block.start, of(block))).collect()
    }

    fn present(&self) -> BTreeSet<u64> {
        self.frames(|block| block.present)
    }

    /// The accessed frames that can be observed.
    fn accessed(&self) -> BTreeSet<u64> {
        self.frames(|block| block.accessed & !block.unobservable)
    }

    /// Surveys and clears until none of `frames` is accessed.
    #[track_caller]
    fn settle(&mut self, frames: &BTreeSet<u64>) {
        for _ in 0..20 {
            self.survey();
            if self.accessed().is_disjoint(frames) {
                return;
            }
            self.clear();
        }
        panic!("{} frames stay accessed", self.accessed().intersection(frames).count());
    }
}

/// All observable pages that were found accessed.
fn to_clear(blocks: &[BlockPages]) -> Vec<ClearPages> {
    let chosen = blocks.iter().map(|block| ClearPages {
        start: block.start,
        pages: block.accessed & !block.unobservable & !block.shared,
        unobservable: PageBits::NONE,
    });
    chosen.filter(|block| !block.pages.is_empty()).collect()
}

fn frames_of(start: u64, pages: PageBits) -> impl Iterator<Item = u64> {
    pages.iter().map(move |page| start / PAGE + page as u64)
}

/// The page frames of a range, from `/proc/PID/pagemap`.
fn frames(target: &Target, start: u64, size: u64) -> BTreeSet<u64> {
    let pagemap = fs::File::open(format!("/proc/{}/pagemap", target.pid())).unwrap();
    let mut entries = vec![0; (size / PAGE * 8) as usize];
    pagemap.read_exact_at(&mut entries, start / PAGE * 8).unwrap();
    let entries = entries.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
    entries.filter(|entry| entry >> 63 == 1).map(|entry| entry & ((1 << 55) - 1)).collect()
}

/// Whether the sets are the same, but for a fiftieth of the second: the kernel's DAMON clears accessed bits if it runs,
/// and a page may have been moved to another frame. An error tells how they differ.
fn same(found: &BTreeSet<u64>, expected: &BTreeSet<u64>, what: &str) -> Result<(), String> {
    let differ = found.symmetric_difference(expected).count();
    let same = differ * 50 <= expected.len();
    same.then_some(()).ok_or_else(|| format!("{what}: {differ} frames differ from {}", expected.len()))
}

#[track_caller]
fn assert_same(found: &BTreeSet<u64>, expected: &BTreeSet<u64>, what: &str) {
    same(found, expected, what).unwrap();
}

fn within(found: BTreeSet<u64>, all: &BTreeSet<u64>) -> BTreeSet<u64> {
    found.intersection(all).copied().collect()
}

/// Reads a range of `all`, surveys and clears, and tells whether each survey found what it should.
fn found_and_cleared(
    machine: &mut Machine,
    target: &mut Target,
    (from, size): (u64, u64),
    all: &BTreeSet<u64>,
    least_bits: u64,
) -> Result<(), String> {
    machine.settle(all);
    same(&within(machine.present(), all), all, "present")?;
    target.read(from, size);
    let hot = frames(target, from, size);
    machine.survey();
    same(&within(machine.accessed(), all), &hot, "accessed")?;
    let (bits, cleared) = machine.clear();
    same(&within(cleared, all), &hot, "cleared")?;
    if bits < least_bits {
        return Err(format!("{bits} accessed bits were cleared"));
    }
    machine.survey();
    same(&within(machine.accessed(), all), &BTreeSet::new(), "clear")
}

#[test]
fn frames_that_were_freed_lazily_are_not_idle_until_they_are_used_again() {
    const SIZE: u64 = 8 * MIB;
    let mut target = Target::start();
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    let mut machine = or_skip!(Machine::open(&[&target], SharedMemory::Never));
    let [freed, kept] = [(start, SIZE / 2), (start + SIZE / 2, SIZE / 2)].map(|(at, size)| frames(&target, at, size));
    machine.settle(&freed);
    target.request(&format!("free {start} {}", SIZE / 2));
    let check = |machine: &mut Machine, freed: &BTreeSet<u64>, kept: &BTreeSet<u64>| {
        machine.survey();
        let all = freed | kept;
        assert_same(&within(machine.frames(|block| block.lazily_freed), &all), freed, "freed");
        assert_same(&within(machine.present(), &all), kept, "present");
    };
    check(&mut machine, &freed, &kept);
    target.write(start, MIB);
    let used = frames(&target, start, MIB);
    check(&mut machine, &(&freed - &used), &(&kept | &used));
}

#[test]
fn frames_that_io_uring_may_access_are_unobservable_whether_they_seem_accessed_or_not() {
    const SIZE: u64 = 4 * MIB;
    let mut target = Target::start();
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    target.request(&format!("register {start} {MIB}"));
    let mut machine = or_skip!(Machine::open(&[&target], SharedMemory::Never));
    let (hidden, others) = (frames(&target, start, MIB), frames(&target, start + MIB, SIZE - MIB));
    for round in 0..4 {
        let unobservable = |machine: &Machine| machine.frames(|block| block.unobservable);
        if round == 2 {
            machine.settle(&others);
        }
        machine.survey();
        assert_same(&within(unobservable(&machine), &hidden), &hidden, "hidden");
        assert!(within(unobservable(&machine), &others).len() < 32, "round {round}");
        machine.clear();
    }
}

#[test]
fn frames_that_a_process_accesses_are_found_and_no_others() {
    const SIZE: u64 = 4 * MIB;
    for (kind, least_bits, attempts) in [("small", SIZE / PAGE * 49 / 50, 1), ("huge", 2, 10)] {
        let mut target = Target::start();
        let start = target.map(kind, 64 * MIB);
        target.write(start, 40 * MIB);
        let mut machine = or_skip!(Machine::open(&[&target], SharedMemory::Never));
        let all = frames(&target, start, 64 * MIB);
        assert!(nearly(all.len() as u64, 40 * MIB / PAGE), "{kind}: {}", all.len());
        for round in 0..3 {
            // The kernel's DAMON, if it runs, often clears the accessed bit of a huge page between the read and the
            // survey.
            let range = (start + round * 6 * MIB, SIZE);
            let results: Vec<_> =
                std::iter::repeat_with(|| found_and_cleared(&mut machine, &mut target, range, &all, least_bits))
                    .take(attempts)
                    .collect();
            let right = results.iter().filter(|result| result.is_ok()).count();
            assert!(2 * right > attempts, "{kind}: {results:?}");
        }
    }
}

#[test]
fn a_frame_of_two_processes_counts_once_and_is_accessed_through_any_of_them() {
    const SIZE: u64 = 32 * MIB;
    let path = format!("/dev/shm/isotherm-mapped-{}", std::process::id());
    fs::write(&path, vec![1; SIZE as usize]).unwrap();
    let mut targets = [Target::start(), Target::start()];
    let starts = targets.each_mut().map(|target| target.map(&format!("file:{path}"), SIZE));
    fs::remove_file(&path).unwrap();
    for (target, start) in targets.iter_mut().zip(starts) {
        target.read(start, SIZE);
    }
    let mut machine = or_skip!(Machine::open(&[&targets[0], &targets[1]], SharedMemory::Always));
    let all = frames(&targets[0], starts[0], SIZE);
    // The kernel's DAMON may have unmapped a page if it runs and reclaims.
    assert!(nearly(all.len() as u64, SIZE / PAGE), "{}", all.len());
    assert_same(&frames(&targets[1], starts[1], SIZE), &all, "mapped by the second");
    machine.settle(&all);
    for _ in 0..2 {
        for (target, from) in targets.iter_mut().zip([starts[0], starts[1] + 4 * MIB]) {
            target.read(from, 8 * MIB);
        }
        machine.survey();
        assert_same(&within(machine.accessed(), &all), &frames(&targets[0], starts[0], 12 * MIB), "accessed by one");
        let (_, cleared) = machine.clear();
        assert_same(&within(cleared, &all), &frames(&targets[0], starts[0], 12 * MIB), "cleared in both");
        machine.survey();
        assert_same(&within(machine.accessed(), &all), &BTreeSet::new(), "clear");
    }
}

#[test]
fn a_survey_in_parts_finds_and_clears_the_same_as_one_in_one_part() {
    const SIZE: u64 = 64 * MIB;
    let path = format!("/dev/shm/isotherm-parts-{}", std::process::id());
    fs::write(&path, vec![1; SIZE as usize / 4]).unwrap();
    let mut targets = [Target::start(), Target::start(), Target::start()];
    let (mut all, mut hot, mut own) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for target in &mut targets {
        let shared = target.map(&format!("file:{path}"), SIZE / 4);
        target.read(shared, SIZE / 4);
        all.extend(frames(target, shared, SIZE / 4));
        let start = target.map("small", SIZE);
        target.write(start, SIZE);
        all.extend(frames(target, start, SIZE));
        own.push((shared, start));
    }
    fs::remove_file(&path).unwrap();
    let [one, two, three] = &targets;
    let mut machine = or_skip!(Machine::open(&[one, two, three], SharedMemory::Always));
    assert!(nearly(all.len() as u64, (3 * SIZE + SIZE / 4) / PAGE), "{}", all.len());
    machine.settle(&all);
    for ((target, &(shared, start)), nth) in targets.iter_mut().zip(&own).zip(0..) {
        for (from, size) in [(shared + nth * MIB, 2 * MIB), (start + nth * 20 * MIB, 8 * MIB)] {
            target.read(from, size);
            hot.extend(frames(target, from, size));
        }
    }
    machine.survey();
    assert_same(&within(machine.accessed(), &all), &hot, "in one part");
    let (bits, cleared, empty) = machine.survey_in_parts(9);
    assert_same(&within(machine.present(), &all), &all, "present");
    assert_same(&within(machine.accessed(), &all), &hot, "in parts");
    assert_same(&within(cleared, &all), &hot, "cleared");
    assert!(bits as usize >= hot.len() * 49 / 50, "{bits} {}", hot.len());
    // Some processes are read, and cleared, in a part.
    assert!((2..=10).contains(&empty), "{empty} parts");
    machine.survey_in_parts(100);
    assert_same(&within(machine.accessed(), &all), &BTreeSet::new(), "clear");
}

#[test]
fn processes_come_and_go() {
    let mut targets = [Target::start(), Target::start()];
    let mut sets = Vec::new();
    for target in &mut targets {
        let start = target.map("small", 8 * MIB);
        target.write(start, 8 * MIB);
        sets.push(frames(target, start, 8 * MIB));
    }
    let mut machine = or_skip!(Machine::open(&[&targets[0]], SharedMemory::Never));
    machine.survey();
    assert_same(&within(machine.present(), &sets[0]), &sets[0], "the first process");
    assert!(machine.present().is_disjoint(&sets[1]));
    machine.start(targets[1].pid());
    machine.survey();
    assert_same(&within(machine.present(), &sets[1]), &sets[1], "a process that was started");
    // It ends after the survey has read it.
    targets[0].kill();
    machine.clear();
    machine.survey();
    assert_same(&within(machine.present(), &sets[0]), &BTreeSet::new(), "a process that has ended");
    targets[1].kill();
    machine.survey();
    assert_eq!(machine.found, []);
}

#[test]
fn a_frame_is_unobservable_while_only_a_process_that_cannot_be_cleared_has_accessed_it() {
    let mut target = Target::start();
    let start = target.map("locked", 4 * MIB);
    target.write(start, 4 * MIB);
    let mut machine = or_skip!(Machine::open(&[&target], SharedMemory::Never));
    let locked = frames(&target, start, 4 * MIB);
    machine.survey();
    let (_, cleared) = machine.clear();
    // A kernel's DAMON that clears a bit in between seems to be this one.
    assert_same(&locked.difference(&cleared).copied().collect(), &locked, "locked, and not cleared");
    for _ in 0..2 {
        machine.survey();
        assert_same(&within(machine.frames(|block| block.unobservable), &locked), &locked, "locked");
        machine.clear();
    }
}

#[test]
fn only_the_memory_that_was_asked_for_is_told() {
    let mut target = Target::start();
    let start = target.map("small", 8 * MIB);
    target.write(start, 8 * MIB);
    let mut machine = or_skip!(Machine::open(&[&target], SharedMemory::Never));
    let first = *frames(&target, start, 8 * MIB).first().unwrap();
    let range = isotherm_core::AddrRange::new(first * PAGE, (first + 3) * PAGE).unwrap();
    let memory = PhysicalMemory::new([range]).unwrap().read_targets().unwrap();
    Survey::begin(&mut machine.probe).unwrap();
    Survey::read(&mut machine.probe, &memory[0], SurveyPart::ALL, &mut machine.found).unwrap();
    assert!(machine.present().contains(&first));
    assert!(machine.present().iter().all(|frame| (first..first + 3).contains(frame)), "{:?}", machine.present());
}

#[test]
fn samples_are_unobservable() {
    use isotherm_core::AccessProbe;
    let mut machine = or_skip!(Machine::open(&[], SharedMemory::Never));
    assert!(!machine.probe.has_samples());
    let samples = [Sample { target: TargetId::PhysicalMemory, addr: 0 }];
    AccessProbe::clear(&mut machine.probe, &samples).unwrap();
    let mut answers = [Observation::Idle];
    AccessProbe::read(&mut machine.probe, &samples, &mut answers).unwrap();
    assert_eq!(answers, [Observation::Unobservable]);
}
