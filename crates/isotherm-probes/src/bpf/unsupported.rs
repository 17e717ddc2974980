//! The `bpf` probe on architectures other than x86-64: it always returns an error.

use std::convert::Infallible;

use isotherm_core::{AccessProbe, BoxError, Observation, Sample, TargetSpace};

use super::{BpfError, Look, SharedLeftOut, SharedLimits, SharedMemory};

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

    /// Sets whether the probe sweeps from now on.
    pub fn set_sweeps(&mut self, _: bool) {
        match self.0 {}
    }

    /// Sets whether surveys observe memory that several processes map.
    pub fn set_shared_memory(&mut self, _: SharedMemory, _: SharedLimits) {
        match self.0 {}
    }

    /// The memory that several processes map and that the last survey has left unobservable.
    pub fn shared_left_out(&self) -> Option<SharedLeftOut> {
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

/// The survey of processes, which does not exist on this architecture.
#[derive(Debug)]
pub(crate) enum PageSurvey {}

/// A process, and the marks of its pages.
#[derive(Debug)]
pub(crate) enum Surveyed {}

/// The result of opening a process for a survey.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The process is open.
    Held(Surveyed),
    /// There is no such process.
    Gone,
    /// Access to its memory is not permitted.
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
