//! The check before an action: finds the pages that were accessed since a survey or a sample has marked them.

use std::path::PathBuf;

use isotherm_core::{AccessProbe, BoxError, Observation, Sample, TargetSpace};
use isotherm_kernel::page_cache::FileTable;
use isotherm_kernel::pages::{FlagTable, PageBuffer, Table};

use super::accesses::Accesses;
use super::bitmap::BITMAP;
use super::frames::{Frames, Page, State};
use super::target::IdleTarget;
use super::{IdleError, IdleProbe};

/// Tells of pages whether they were accessed since an [`IdleProbe`] has marked them, on any thread. It marks nothing.
///
/// - A page counts as idle only if it is known to be: if it is marked, and neither its idle bit nor the samples and
///   surveys of the probe have shown an access since the last survey. A page that was never marked, or that the kernel
///   cannot check now, counts as accessed.
/// - What the last survey has found accessed counts as accessed until the next one begins.
/// - The kernel keeps what a look finds: surveys and samples find the same accesses afterwards.
#[derive(Debug)]
pub struct IdleLook {
    root: PathBuf,
    bitmap: Table,
    flags: FlagTable,
    files: FileTable,
    accesses: Accesses,
    targets: Vec<IdleTarget>,
    pages: Vec<Page>,
    frames: Vec<Option<u64>>,
    buffer: PageBuffer,
}

impl IdleProbe {
    /// A look at the pages that this probe marks.
    ///
    /// # Errors
    /// If the kernel's files cannot be opened again.
    pub fn look(&self) -> Result<IdleLook, IdleError> {
        Ok(IdleLook {
            root: self.root.clone(),
            bitmap: Table::open(&self.root, BITMAP, false).map_err(IdleError::bitmap)?,
            flags: FlagTable::open(&self.root).map_err(IdleError::flags)?,
            files: self.files.clone(),
            accesses: self.accesses.clone(),
            targets: Vec::new(),
            pages: Vec::new(),
            frames: Vec::new(),
            buffer: PageBuffer::default(),
        })
    }
}

impl AccessProbe for IdleLook {
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        self.targets.clear();
        for space in targets {
            self.targets.push(IdleTarget::open(&self.root, &self.files, space)?.0);
        }
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        // A page that is not present is idle.
        answers.fill(Observation::Idle);
        for target in &self.targets {
            let mut order: Vec<usize> =
                (0..samples.len()).filter(|&index| samples[index].target == target.id).collect();
            order.sort_unstable_by_key(|&index| samples[index].addr);
            self.frames.clear();
            let addresses = order.iter().map(|&index| samples[index].addr);
            target.frames(addresses, &mut self.buffer, |frame| self.frames.push(frame));
            self.pages.clear();
            for (&index, frame) in order.iter().zip(&self.frames) {
                match frame {
                    // The frame cannot be read.
                    Some(0) => answers[index] = Observation::Unobservable,
                    Some(frame) => self.pages.push(Page::new(*frame, index, 0)),
                    None => {}
                }
            }
            let mut frames = Frames { bitmap: &self.bitmap, flags: &self.flags, buffer: &mut self.buffer };
            frames.read(&mut self.pages).map_err(IdleError::from)?;
            let accesses = self.accesses.lock();
            for page in &self.pages {
                let is_idle = match page.state {
                    State::Zero => true,
                    State::Idle => !accesses.contain_lately(page.head),
                    State::Accessed | State::Unobservable | State::Other => false,
                };
                answers[page.block as usize] = if is_idle { Observation::Idle } else { Observation::Accessed };
            }
        }
        Ok(())
    }

    /// None.
    fn clears(&self) -> u64 {
        0
    }
}
