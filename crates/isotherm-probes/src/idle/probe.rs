//! The `idle` probe: the work of one sampling round.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use isotherm_core::survey::Survey;
use isotherm_core::{AccessProbe, BoxError, Observation, PAGE_SIZE, PageProbe, Sample, TargetId, TargetSpace};

use super::IdleError;
use super::accesses::Accesses;
use super::bitmap::{BITMAP, READ_REACH, WORD, WRITE_REACH};
use super::survey::IdleSurvey;
use super::target::IdleTarget;
use crate::elsewhere::AccessedElsewhere;
use isotherm_kernel::page_cache::FileTable;
use isotherm_kernel::pages::{FlagTable, Flags, PageBuffer, Pagemap, Table, TableError};
use isotherm_kernel::{Scratch, Unreadable};

/// Learns from the kernel's idle page tracking which pages were accessed.
#[derive(Debug)]
pub struct IdleProbe {
    pub(super) root: PathBuf,
    pub(super) bitmap: Table,
    pub(super) flags: FlagTable,
    /// The files whose page cache is a target.
    pub(super) files: FileTable,
    pub(super) targets: Vec<IdleTarget>,
    /// What devices and io_uring access of each process. The kernel sees the accesses of guests.
    pub(super) elsewhere: HashMap<TargetId, AccessedElsewhere>,
    pub(super) clears: u64,
    pub(super) accesses: Accesses,
    /// What surveys of all pages keep; `None` until the first survey begins.
    pub(super) survey: Option<IdleSurvey>,
    /// The state of each sample of the last clear.
    looks: Vec<AtClear>,
    /// The pages that the last clear marked as idle, sorted by head.
    marked: Vec<Page>,
    /// The words of the bitmap that hold the marked pages, and the bits to set in each.
    words: Vec<(u64, u64)>,
    // The buffers below are kept between rounds, so that a round allocates nothing.
    pub(super) order: Vec<u32>,
    pub(super) frames: Vec<Option<u64>>,
    entries: Vec<Option<u64>>,
    suspects: Vec<Page>,
    pub(super) buffer: PageBuffer,
}

/// What the last clear found for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtClear {
    /// Nothing is mapped there.
    Nothing,
    /// Nothing was present, but a page may be faulted in.
    Absent,
    /// The accesses of the page cannot be observed.
    Unobservable,
    /// The page is one of those that were marked.
    Marked,
}

/// The page of a sample.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// The sample's index.
    sample: u32,
    frame: u64,
    /// The frame whose bit is used: the first frame of a compound page, or else the page's own frame.
    head: u64,
    flags: Flags,
}

impl Page {
    fn word(&self) -> u64 {
        self.head / WORD
    }

    fn bit(&self) -> u64 {
        1 << (self.head % WORD)
    }
}

impl IdleProbe {
    /// Opens the kernel's files, and checks that the kernel shows page frame numbers.
    ///
    /// # Errors
    /// If the probe does not work here. The error says why, and how to fix it.
    pub fn open() -> Result<Self, IdleError> {
        let page_size = rustix::param::page_size();
        if page_size as u64 != PAGE_SIZE {
            return Err(IdleError::PageSize(page_size));
        }
        let root = Path::new("/");
        let probe = Self::at(root)?;
        let own = Scratch::new(PAGE_SIZE)?;
        own.touch(0);
        let pagemap = Pagemap::open(root, "self").map_err(IdleError::pagemap)?;
        let mut frame = None;
        pagemap.frames(std::iter::once(own.start()), &mut PageBuffer::default(), |found| frame = found)?;
        match frame {
            Some(0) | None => Err(IdleError::HiddenFrames),
            Some(_) => Ok(probe),
        }
    }

    /// Opens the files below `root`, without the checks of [`open`](Self::open). Tests use it on a made directory tree.
    ///
    /// # Errors
    /// If one of them cannot be opened.
    pub fn at(root: &Path) -> Result<Self, IdleError> {
        Ok(Self {
            root: root.into(),
            bitmap: Table::open(root, BITMAP, true).map_err(IdleError::bitmap)?,
            flags: FlagTable::open(root).map_err(IdleError::flags)?,
            files: FileTable::default(),
            targets: Vec::new(),
            elsewhere: HashMap::new(),
            clears: 0,
            accesses: Accesses::default(),
            survey: None,
            looks: Vec::new(),
            marked: Vec::new(),
            words: Vec::new(),
            order: Vec::new(),
            frames: Vec::new(),
            entries: Vec::new(),
            suspects: Vec::new(),
            buffer: PageBuffer::default(),
        })
    }

    /// The same probe, which also observes the page cache of these files.
    #[must_use]
    pub fn with_files(self, files: FileTable) -> Self {
        Self { files, ..self }
    }

    /// Finds out what others access of a target, if that was not done a short time ago.
    pub(super) fn look_elsewhere(&mut self, space: &TargetSpace) {
        if space.id.pid().is_some() {
            let elsewhere = self.elsewhere.entry(space.id).or_insert_with(AccessedElsewhere::but_guests);
            elsewhere.update(&self.root, space.id, &space.mappings, true);
        }
    }

    /// Sorts `order`, which holds indices of samples, by address, and puts the frames of these samples into `frames`
    /// in that order.
    fn locate(&mut self, samples: &[Sample]) {
        let at = |&index: &u32| samples[index as usize];
        self.order.sort_unstable_by_key(|index| (at(index).target, at(index).addr));
        self.frames.clear();
        for of_one in self.order.chunk_by(|a, b| at(a).target == at(b).target) {
            let id = at(&of_one[0]).target;
            let addresses = of_one.iter().map(|index| at(index).addr);
            if let Some(target) = self.targets.iter().find(|target| target.id == id) {
                target.frames(addresses, &mut self.buffer, |frame| self.frames.push(frame));
            } else {
                self.frames.extend(addresses.map(|_| None));
            }
        }
    }

    /// Puts the indices of the samples that lie in mappings into `order`, sorted by address, and their frames into
    /// `frames`.
    pub(super) fn locate_mapped(&mut self, samples: &[Sample]) {
        self.order.clear();
        let mut target = None;
        for (index, sample) in (0..).zip(samples) {
            if target.is_none_or(|target: &IdleTarget| target.id != sample.target) {
                target = self.targets.iter().find(|target| target.id == sample.target);
            }
            if target.is_some_and(|target| target.maps(sample.addr)) {
                self.order.push(index);
            }
        }
        self.locate(samples);
    }

    /// Finds the state of each of `samples`, and the pages that can be marked.
    fn find(&mut self, samples: &[Sample]) -> Result<(), TableError> {
        self.locate_mapped(samples);
        self.looks.clear();
        self.looks.resize(samples.len(), AtClear::Nothing);
        self.order.iter().for_each(|&index| self.looks[index as usize] = AtClear::Absent);
        self.marked.clear();
        let found = self.order.iter().zip(&self.frames);
        let page = |(&sample, &frame): (_, &Option<u64>)| {
            frame.map(|frame| Page { sample, frame, head: frame, flags: Flags::default() })
        };
        self.marked.extend(found.filter_map(page));
        self.marked.sort_unstable_by_key(|page| page.frame);

        self.entries.clear();
        let entries = &mut self.entries;
        self.flags
            .each(self.marked.iter().map(|page| page.frame), &mut self.buffer, |flags| entries.push(Some(flags.0)))?;
        for (page, flags) in self.marked.iter_mut().zip(&self.entries) {
            page.flags = Flags(flags.unwrap_or(0));
            if page.flags.is_tail() && !page.flags.is_hugetlb() {
                (page.head, page.flags) = self.flags.head(page.frame)?.unwrap_or((page.frame, Flags::default()));
            }
        }
        let (looks, elsewhere) = (&mut self.looks, &self.elsewhere);
        let is_any = elsewhere.values().any(|of| !of.ranges().is_empty());
        let is_elsewhere =
            |of: Sample| is_any && elsewhere.get(&of.target).is_some_and(|known| known.contains(of.addr));
        self.marked.retain(|page| {
            let observable = page.flags.is_listed() && !is_elsewhere(samples[page.sample as usize]);
            looks[page.sample as usize] = if observable { AtClear::Marked } else { AtClear::Unobservable };
            observable
        });
        self.marked.sort_unstable_by_key(|page| page.head);
        Ok(())
    }

    /// Tells the survey which of the pages that [`find`](Self::find) found were accessed since it has marked them.
    /// Marking them again hides these accesses.
    fn note_accesses(&mut self) -> Result<(), TableError> {
        if self.survey.is_none() {
            return Ok(());
        }
        let mut accesses = self.accesses.lock();
        // A page without the flag was not marked, or its access was found already.
        let of_word = |a: &Page, b: &Page| a.word() == b.word();
        self.words.clear();
        for pages in self.marked.chunk_by(of_word) {
            let in_doubt = pages.iter().filter(|page| page.flags.is_marked_idle());
            let bits = in_doubt.fold(0, |bits, page| bits | page.bit());
            if bits != 0 {
                self.words.push((pages[0].word(), bits));
            }
            let accessed = pages.iter().filter(|page| !page.flags.is_marked_idle());
            accessed.for_each(|page| accesses.before_a_sample(page.head));
        }
        let mut words = self.words.iter();
        self.bitmap.entries(self.words.iter().map(|&(word, _)| word), READ_REACH, &mut self.buffer, |idle| {
            let Some(&(word, bits)) = words.next() else { return };
            let accessed = bits & !idle.unwrap_or(u64::MAX);
            (0..WORD).filter(|bit| accessed >> bit & 1 == 1).for_each(|bit| {
                accesses.before_a_sample(word * WORD + bit);
            });
        })
    }

    /// Marks the pages that [`find`](Self::find) found as idle.
    fn mark(&mut self) -> Result<(), TableError> {
        self.words.clear();
        for page in &self.marked {
            match self.words.last_mut() {
                Some((word, bits)) if *word == page.word() => *bits |= page.bit(),
                _ => self.words.push((page.word(), page.bit())),
            }
        }
        self.clears += self.words.iter().map(|(_, bits)| u64::from(bits.count_ones())).sum::<u64>();
        self.bitmap.write(self.words.iter().copied(), WRITE_REACH, &mut self.buffer)
    }

    /// Answers for the pages that are still idle. The other marked pages become suspects: they may have been accessed.
    fn read_marks(&mut self, answers: &mut [Observation]) -> Result<(), TableError> {
        self.entries.clear();
        let entries = &mut self.entries;
        let words = self.words.iter().map(|&(word, _)| word);
        self.bitmap.entries(words, READ_REACH, &mut self.buffer, |bits| entries.push(bits))?;
        self.suspects.clear();
        let mut words = self.words.iter().zip(&self.entries).peekable();
        for page in &self.marked {
            while words.next_if(|((word, _), _)| *word < page.word()).is_some() {}
            let bits = words.peek().and_then(|(_, bits)| **bits);
            answers[page.sample as usize] = match bits {
                // The memory has been removed: the bitmap ends before this word.
                None => Observation::Unobservable,
                Some(bits) if bits & page.bit() != 0 => Observation::Idle,
                Some(_) => {
                    self.suspects.push(*page);
                    Observation::Accessed
                }
            };
        }
        Ok(())
    }

    /// Checks the suspects again. The kernel also reports "not idle" for every page that it keeps no bit for.
    fn confirm(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), TableError> {
        let mut suspects = self.suspects.iter();
        let heads = self.suspects.iter().map(|page| page.head);
        self.flags.each(heads, &mut self.buffer, |flags| {
            if let Some(page) = suspects.next()
                && (!flags.is_listed() || flags.is_marked_idle())
            {
                answers[page.sample as usize] = Observation::Unobservable;
            }
        })?;

        // A page of a process may have been freed, moved or faulted in since the clear.
        let physical = |index: usize| {
            let target = self.targets.iter().find(|target| target.id == samples[index].target);
            target.is_some_and(IdleTarget::is_physical)
        };
        self.order.clear();
        for (index, look) in self.looks.iter().enumerate() {
            let suspected = *look == AtClear::Marked && answers[index] == Observation::Accessed;
            if (suspected || *look == AtClear::Absent) && !physical(index) {
                self.order.push(index as u32);
            }
        }
        self.locate(samples);
        // The order by sample allows the binary search below.
        self.suspects.sort_unstable_by_key(|page| page.sample);
        for (&index, frame) in self.order.iter().zip(&self.frames) {
            let before = self.suspects.binary_search_by_key(&index, |page| page.sample);
            let before = before.ok().map(|at| self.suspects[at].frame);
            answers[index as usize] = match (before, frame) {
                (_, None) => Observation::Idle,
                // The page was faulted in after the clear.
                (None, Some(_)) => Observation::Accessed,
                (Some(before), Some(now)) if before == *now => Observation::Accessed,
                (Some(_), Some(_)) => Observation::Unobservable,
            };
        }
        Ok(())
    }
}

impl AccessProbe for IdleProbe {
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        let is_first = self.targets.is_empty();
        self.targets.clear();
        let mut refused = None;
        let mut any_open = false;
        for space in targets {
            let (target, refusal) = IdleTarget::open(&self.root, &self.files, space)?;
            // What can be read at another time does not end a run that goes on.
            any_open |= refusal.as_ref().is_none_or(|error| !is_first && Unreadable::passes(error));
            refused = refusal.map(|source| IdleError::Refused { target: space.id, source }).or(refused);
            self.targets.push(target);
            self.look_elsewhere(space);
        }
        self.elsewhere.retain(|id, _| targets.iter().any(|space| space.id == *id));
        match refused {
            Some(refused) if !any_open => Err(refused.into()),
            _ => Ok(()),
        }
    }

    fn join(&mut self, joined: &[TargetSpace]) -> Result<(), BoxError> {
        for space in joined {
            // One that refuses access is opened again at the next update.
            let (target, _) = IdleTarget::open(&self.root, &self.files, space)?;
            self.targets.push(target);
            self.look_elsewhere(space);
        }
        Ok(())
    }

    fn clear(&mut self, samples: &[Sample]) -> Result<(), BoxError> {
        self.find(samples).map_err(IdleError::from)?;
        self.note_accesses().map_err(IdleError::from)?;
        Ok(self.mark().map_err(IdleError::from)?)
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        if self.looks.len() != samples.len() {
            // No clear came before this read.
            answers.fill(Observation::Unobservable);
            return Ok(());
        }
        for (answer, look) in answers.iter_mut().zip(&self.looks) {
            *answer = if *look == AtClear::Unobservable { Observation::Unobservable } else { Observation::Idle };
        }
        self.read_marks(answers).map_err(IdleError::from)?;
        Ok(self.confirm(samples, answers).map_err(IdleError::from)?)
    }

    /// The number of pages that were marked. A compound page counts as one.
    fn clears(&self) -> u64 {
        self.clears
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        Some(self)
    }

    fn pages(&mut self) -> Option<&mut dyn PageProbe> {
        Some(self)
    }
}
