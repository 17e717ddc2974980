//! The panel: single pages are read and marked at any time, beside samples and surveys.

use isotherm_core::survey::BLOCK_PAGES;
use isotherm_core::{BoxError, PageLook, PageProbe, Sample};
use isotherm_kernel::pages::{PageBuffer, TableError};

use super::frames::{Frames, Page, State, heads};
use super::{IdleError, IdleProbe};

impl PageProbe for IdleProbe {
    fn look(&mut self, samples: &[Sample], looks: &mut Vec<PageLook>) -> Result<(), BoxError> {
        Ok(self.look_at(samples, looks).map_err(IdleError::from)?)
    }

    fn clear_pages(&mut self, samples: &[Sample], cleared: &mut Vec<bool>) -> Result<(), BoxError> {
        Ok(self.mark_pages(samples, cleared).map_err(IdleError::from)?)
    }
}

impl IdleProbe {
    fn look_at(&mut self, samples: &[Sample], looks: &mut Vec<PageLook>) -> Result<(), TableError> {
        let first = looks.len();
        looks.resize(first + samples.len(), PageLook::default());
        let mut pages = self.pages_of(samples);
        let mut buffer = PageBuffer::default();
        Frames { bitmap: &self.bitmap, flags: &self.flags, buffer: &mut buffer }.read(&mut pages)?;
        let mut huge = None;
        for page in &pages {
            let sample = samples[page.block as usize];
            let is_memory = match page.state {
                State::Zero => false,
                State::Other => sample.target.pid().is_some(),
                State::Idle | State::Accessed | State::Unobservable => true,
            };
            if !is_memory {
                continue;
            }
            // The flags of an idle page were not read. Only the first frame of a folio has a bit that says idle.
            let is_first = page.frame.is_multiple_of(BLOCK_PAGES as u64);
            let start = page.frame - page.frame % BLOCK_PAGES as u64;
            if (page.folio || is_first) && huge.is_none_or(|(known, _)| known != start) {
                huge = Some((start, self.flags.is_huge_page(start)?));
            }
            looks[first + page.block as usize] = PageLook {
                present: true,
                accessed: page.state != State::Idle || self.is_accessed_elsewhere(sample),
                huge: huge == Some((start, true)),
                frame: Some(page.frame),
            };
        }
        Ok(())
    }

    fn mark_pages(&mut self, samples: &[Sample], cleared: &mut Vec<bool>) -> Result<(), TableError> {
        let first = cleared.len();
        cleared.resize(first + samples.len(), false);
        let mut pages = self.pages_of(samples);
        pages.retain(|page| !self.is_accessed_elsewhere(samples[page.block as usize]));
        pages.sort_unstable_by_key(|page| page.frame);
        let mut buffer = PageBuffer::default();
        let mut frames = Frames { bitmap: &self.bitmap, flags: &self.flags, buffer: &mut buffer };
        frames.look(&mut pages, false)?;
        let heads = heads(&pages);
        {
            let mut accesses = self.accesses.lock();
            heads.iter().for_each(|&head| accesses.before_a_sample(head));
        }
        frames.mark(&heads)?;
        self.clears += heads.len() as u64;
        for page in pages.iter().filter(|page| page.state == State::Accessed) {
            cleared[first + page.block as usize] = true;
        }
        Ok(())
    }

    /// The pages of samples that are in memory, each with the index of its sample as its block.
    fn pages_of(&mut self, samples: &[Sample]) -> Vec<Page> {
        self.locate_mapped(samples);
        let found = self.order.iter().zip(&self.frames);
        found.filter_map(|(&sample, &frame)| Some(Page::new(frame?, sample as usize, 0))).collect()
    }

    /// Whether a device or io_uring accesses the page, whatever its bit says.
    fn is_accessed_elsewhere(&self, sample: Sample) -> bool {
        self.elsewhere.get(&sample.target).is_some_and(|known| known.contains(sample.addr))
    }
}
