//! What moves memory during a run.

use std::path::Path;

use anyhow::Result;

use super::Configuration;
use super::kernel::KernelTiering;
use super::steering::{Steered, Steering};

/// What moves memory, while it does.
pub(super) enum Mover {
    None,
    Isotherm(Steering),
    Kernel(KernelTiering),
}

impl Mover {
    /// Starts what this configuration has. `isotherm` is the path of isotherm, `place` a directory for its recording.
    pub(super) fn start(
        configuration: Configuration,
        isotherm: &Path,
        place: &Path,
        options: &[String],
    ) -> Result<Self> {
        Ok(match configuration {
            Configuration::Isotherm => {
                // There may be no process yet.
                let options: Vec<_> = options.iter().cloned().chain(["--wait".into()]).collect();
                Self::Isotherm(Steering::start(isotherm, place, &options)?)
            }
            Configuration::Damon => Self::Kernel(KernelTiering::damon()?),
            Configuration::Balancing => Self::Kernel(KernelTiering::balancing()?),
            Configuration::Fast | Configuration::Slow | Configuration::Default => Self::None,
        })
    }

    /// Its CPU time so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        match self {
            Self::None => Ok(0.0),
            Self::Isotherm(steering) => steering.cpu_seconds(),
            Self::Kernel(tiering) => tiering.cpu_seconds(),
        }
    }

    /// Ends it. Returns what isotherm says about itself.
    pub(super) fn end(self) -> Result<Option<Steered>> {
        match self {
            Self::Isotherm(steering) => steering.end().map(Some),
            Self::None | Self::Kernel(_) => Ok(None),
        }
    }
}
