//! Finds out which page frames were accessed.

use isotherm_kernel::pages::{FlagTable, Flags, PageBuffer, Table, TableError};

use super::bitmap::{READ_REACH, WORD, WRITE_REACH};

/// A page of a target, and what is known of its frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) frame: u64,
    /// The number of the block among those read, and the number of the page in the block.
    pub(super) block: u32,
    pub(super) page: u16,
    pub(super) state: State,
    /// The frame whose bit is used: the first frame of a folio, or else the page's own frame.
    pub(super) head: u64,
    /// Whether the frame is known to be a part of a folio of several frames.
    pub(super) folio: bool,
}

/// What is known of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It was not accessed since it was marked.
    Idle,
    /// It was accessed since it was marked, or was not marked yet.
    Accessed,
    /// The kernel keeps no bit for it, or cannot check it now.
    Unobservable,
    /// It is the zero page, which is no memory of the process.
    Zero,
    /// It is no memory of a user: it is free, or is used by the kernel or by a device. No bit is kept for it.
    Other,
}

impl Page {
    /// A page with a known frame, and nothing else known.
    pub(super) fn new(frame: u64, block: usize, page: usize) -> Self {
        Self { frame, block: block as u32, page: page as u16, state: State::Accessed, head: frame, folio: false }
    }
}

/// The kernel's tables of page frames, and buffers that are kept between surveys.
#[derive(Debug)]
pub(super) struct Frames<'a> {
    pub(super) bitmap: &'a Table,
    pub(super) flags: &'a FlagTable,
    pub(super) buffer: &'a mut PageBuffer,
}

impl Frames<'_> {
    /// Finds the states of `pages`, and sorts them by frame.
    pub(super) fn read(&mut self, pages: &mut [Page]) -> Result<(), TableError> {
        pages.sort_unstable_by_key(|page| page.frame);
        self.read_bits(pages, |page| page.frame)?;
        self.look(pages, true)?;
        // The bit of a tail is that of its head.
        let mut tails: Vec<Page> = pages.iter().copied().filter(|page| page.head != page.frame).collect();
        tails.sort_unstable_by_key(|page| page.head);
        self.read_bits(&mut tails, |page| page.head)?;
        // Tails of one folio have the same bit, and folios are in the order of their frames in both.
        let mut heads = tails.chunk_by(|a, b| a.head == b.head).map(|of_one| of_one[0]).peekable();
        for page in pages.iter_mut() {
            if page.head != page.frame {
                while heads.next_if(|of| of.head < page.head).is_some() {}
                let is_idle = heads.peek().is_some_and(|of| of.head == page.head && of.state == State::Idle);
                if is_idle && page.state == State::Accessed {
                    page.state = State::Idle;
                }
            }
        }
        Ok(())
    }

    /// Sets the state of each page to idle or accessed, by the bit of the frame that `of` gives. Pages are sorted by
    /// it.
    fn read_bits(&mut self, pages: &mut [Page], of: impl Fn(&Page) -> u64) -> Result<(), TableError> {
        let same_word = |a: &Page, b: &Page| of(a) / WORD == of(b) / WORD;
        let words: Vec<u64> = pages.chunk_by(same_word).map(|of_one| of(&of_one[0]) / WORD).collect();
        let mut found = pages.chunk_by_mut(same_word);
        self.bitmap.entries(words.into_iter(), READ_REACH, self.buffer, |bits| {
            // Memory that was removed has no bits.
            let bits = bits.unwrap_or(0);
            for page in found.next().into_iter().flatten() {
                page.state = if bits >> (of(page) % WORD) & 1 == 1 { State::Idle } else { State::Accessed };
            }
        })
    }

    /// Looks at the flags of the pages that are not idle: finds the heads of tails, the zero page, and what cannot be
    /// observed. `were_read` says that their bits were read before. Pages are sorted by frame.
    pub(super) fn look(&mut self, pages: &mut [Page], were_read: bool) -> Result<(), TableError> {
        let mut flags = Vec::new();
        let frames = pages.iter().filter(|page| page.state != State::Idle).map(|page| page.frame);
        self.flags.each(frames, self.buffer, |found| flags.push(found))?;
        let mut folio: Option<(std::ops::Range<u64>, Flags)> = None;
        for (page, mut flags) in pages.iter_mut().filter(|page| page.state != State::Idle).zip(flags) {
            if flags.is_zero_page() {
                page.state = State::Zero;
                continue;
            }
            page.folio = flags.is_compound();
            if flags.is_tail() && !flags.is_hugetlb() {
                if !folio.as_ref().is_some_and(|(frames, _)| frames.contains(&page.frame)) {
                    folio = match self.flags.folio(page.frame)? {
                        Some(frames) => self.flags.flags(frames.start)?.map(|flags| (frames, flags)),
                        None => None,
                    };
                }
                if let Some((frames, of_head)) = &folio {
                    (page.head, flags) = (frames.start, *of_head);
                }
            }
            // A page that is not idle and has the flag nevertheless could not be checked just now. For a tail, its bit
            // is not known yet.
            let unchecked = were_read && flags.is_marked_idle() && page.head == page.frame;
            if !flags.is_of_a_user() && !flags.is_hugetlb() {
                page.state = State::Other;
            } else if !flags.is_listed() || unchecked {
                page.state = State::Unobservable;
            }
        }
        Ok(())
    }

    /// Marks these frames, which are sorted.
    pub(super) fn mark(&mut self, heads: &[u64]) -> Result<(), TableError> {
        let words: Vec<(u64, u64)> = heads
            .chunk_by(|a, b| a / WORD == b / WORD)
            .map(|of_one| (of_one[0] / WORD, of_one.iter().fold(0, |bits, head| bits | 1 << (head % WORD))))
            .collect();
        self.bitmap.write(words.iter().copied(), WRITE_REACH, self.buffer)
    }
}

/// The frames to mark so that `pages` are marked, as far as they can be observed: sorted heads.
/// [`Frames::look`] has looked at the pages.
pub(super) fn heads(pages: &[Page]) -> Vec<u64> {
    let observable = pages.iter().filter(|page| page.state == State::Accessed);
    let mut heads: Vec<u64> = observable.map(|page| page.head).collect();
    heads.sort_unstable();
    heads.dedup();
    heads
}
