//! The probe where page tables are not those of x86-64: it says so.

use std::convert::Infallible;

use isotherm_core::{AccessProbe, BoxError, Observation, Sample, TargetSpace};

use super::{BpfError, Look};

/// Reads accessed bits inside the kernel with eBPF, on x86-64; here there is none.
#[derive(Debug)]
pub struct BpfProbe(Infallible);

impl BpfProbe {
    /// Fails.
    ///
    /// # Errors
    /// Always: this is not x86-64.
    pub fn open() -> Result<Self, BpfError> {
        Err(BpfError::Architecture(std::env::consts::ARCH))
    }

    /// Fails.
    ///
    /// # Errors
    /// Always: this is not x86-64.
    pub fn check() -> Result<(), BpfError> {
        Self::open().map(|_| ())
    }

    /// Says whether a target's memory is cleared at the start.
    #[must_use]
    pub fn with_sweeps(self, _: bool) -> Self {
        self
    }

    /// How many levels the page tables of this machine have.
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

/// The survey of page tables, which does not exist for this architecture.
#[derive(Debug)]
pub(crate) enum PageSurvey {}

/// A process of a survey.
#[derive(Debug)]
pub(crate) enum Surveyed {}

/// What came of taking hold of a process.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is held.
    Held(Surveyed),
    /// It is not there.
    Gone,
    /// It may not be looked at.
    Refused(std::io::Error),
}

impl PageSurvey {
    pub(crate) fn open() -> Result<Self, BpfError> {
        Err(BpfError::Architecture(std::env::consts::ARCH))
    }

    pub(crate) fn begin(&mut self) -> Result<(), BpfError> {
        match *self {}
    }

    pub(crate) fn take(&mut self, _: u32, _: Option<Surveyed>) -> Result<Taken, BpfError> {
        match *self {}
    }

    pub(crate) fn visit<E>(
        &mut self,
        _: &mut Surveyed,
        _: &isotherm_core::Mapping,
        _: Look,
        _: &mut isotherm_core::IdleTally,
        _: &mut dyn FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        match *self {}
    }
}

impl Surveyed {
    pub(crate) fn is_gone(&self) -> bool {
        match *self {}
    }
}
