//! The `bpf` probe on architectures other than x86-64: it always returns an error.

use std::convert::Infallible;
use std::io;

use isotherm_core::survey::{BLOCK_PAGES, BlockFrames, BlockPages, ClearPages, Rest, Survey, SurveyPart};
use isotherm_core::{AccessProbe, BoxError, Observation, Sample, TargetId, TargetSpace};

use super::{BpfError, SharedLeftOut, SharedLimits, SharedMemory};

/// Reads accessed bits in the kernel with eBPF. It works on x86-64 only.
#[derive(Debug)]
pub struct BpfProbe(Infallible);

impl BpfProbe {
    /// Returns an error.
    ///
    /// # Errors
    /// Always, because this machine is not x86-64.
    pub fn open() -> Result<Self, BpfError> {
        Err(BpfError::Architecture(std::env::consts::ARCH))
    }

    /// Returns an error.
    ///
    /// # Errors
    /// Always, because this machine is not x86-64.
    pub fn check() -> Result<(), BpfError> {
        Self::open().map(|_| ())
    }

    /// Sets whether the probe sweeps.
    #[must_use]
    pub fn with_sweeps(self, _: bool) -> Self {
        self
    }

    /// Sets whether memory that others access is unobservable.
    #[must_use]
    pub fn with_elsewhere(self, _: bool) -> Self {
        self
    }

    /// Sets whether the probe sweeps from now on.
    pub fn set_sweeps(&mut self, _: bool) {
        match self.0 {}
    }

    /// Bounds what sweeps clear.
    pub fn set_sweep_rate(&mut self, _: f64) {
        match self.0 {}
    }

    /// Sets whether surveys observe memory that several processes map.
    pub fn set_shared_memory(&mut self, _: SharedMemory, _: SharedLimits) {
        match self.0 {}
    }

    pub(crate) fn set_all_views(&mut self, _: bool) {
        match self.0 {}
    }

    /// The memory that several processes map and that the last survey has left unobservable.
    pub fn shared_left_out(&self) -> Option<SharedLeftOut> {
        match self.0 {}
    }

    /// There is no probe, so this is never called.
    pub fn agings(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn hold(&mut self, _: &[TargetSpace]) -> Result<Vec<(TargetId, io::Error)>, BpfError> {
        match self.0 {}
    }

    pub(crate) fn address_space(&self, _: TargetId) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn frames(&mut self, _: TargetId, _: impl FnMut(u64, &FrameTable)) -> Result<(), BpfError> {
        match self.0 {}
    }

    pub(crate) fn read_with_frames(
        &mut self,
        _: &TargetSpace,
        _: SurveyPart,
        _: &mut Vec<BlockPages>,
        _: &mut dyn FnMut(&BlockPages, FramesOf<'_>),
    ) -> Result<Rest, BpfError> {
        match self.0 {}
    }

    pub(crate) fn lazily_freed_frames(
        &mut self,
        _: TargetId,
        _: &[BlockPages],
        _: &mut dyn FnMut(BlockFrames<'_>),
    ) -> Result<(), BpfError> {
        match self.0 {}
    }

    /// The number of page-table levels of this machine.
    pub fn page_table_levels(&self) -> u32 {
        match self.0 {}
    }

    /// The address at which the kernel maps physical address 0.
    pub fn direct_map(&self) -> u64 {
        match self.0 {}
    }

    /// Whether this kernel clears large folios without splitting them.
    pub fn clears_large_folios(&self) -> bool {
        match self.0 {}
    }
}

/// The frame of each page of a block.
pub(crate) type FrameTable = [u64; BLOCK_PAGES];

/// The page frames of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramesOf<'a>(Infallible, std::marker::PhantomData<&'a ()>);

impl FramesOf<'_> {
    pub(crate) fn first(self) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn frame(self, _: usize) -> Option<u64> {
        match self.0 {}
    }
}

impl AccessProbe for BpfProbe {
    fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
        match self.0 {}
    }

    fn clear(&mut self, _: &[Sample]) -> Result<(), BoxError> {
        match self.0 {}
    }

    fn read(&mut self, _: &[Sample], _: &mut [Observation]) -> Result<(), BoxError> {
        match self.0 {}
    }

    fn clears(&self) -> u64 {
        match self.0 {}
    }
}

impl Survey for BpfProbe {
    fn read(&mut self, _: &TargetSpace, _: SurveyPart, _: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        match self.0 {}
    }

    fn clear(&mut self, _: TargetId, _: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        match self.0 {}
    }
}
