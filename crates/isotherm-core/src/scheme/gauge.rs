//! Gauges: figures of the system and of its work, which watermarks and goals depend on.

use std::sync::Arc;
use std::time::Duration;

use crate::{BoxError, NodeId, Snapshot};

/// The working set that [`Metric::Refaults`] and [`Metric::Returns`] are shares of: what was accessed within this time
/// (Lagar-Cavilla et al., "Software-Defined Far Memory in Warehouse-Scale Computers", ASPLOS 2019).
pub const WORKING_SET: Duration = Duration::from_secs(120);

/// A figure that watermarks and goals can depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The share of all memory that is free, 0 to 1.
    FreeMemory,
    /// The share of the last ten seconds in which some task waited for memory, 0 to 1 (PSI `some avg10`).
    Pressure,
    /// For how many seconds some task has waited for memory, counted from a fixed moment (PSI `some total`). It
    /// never falls.
    StallTime,
    /// The share of the working set that is resident, 0 to 1. The working set is the mapped bytes of accessed regions.
    WorkingSetResident,
    /// A figure that the user provides.
    Fed(Feed),
    /// The share of a memory node that is used, 0 to 1.
    NodeUsed(NodePart),
    /// The share of a memory node that is free, 0 to 1.
    NodeFree(NodePart),
    /// The share of recent time in which tasks of a cgroup waited for memory, 0 to 1 (PSI of the cgroup).
    CgroupPressure(CgroupPressure),
    /// What the kernel has reclaimed of the cgroups of the targets, and had to bring back within the last minute, as a
    /// share of the [working set](WORKING_SET).
    Refaults,
    /// What the scheme has freed, and surveys have found in memory again within the last minute, as a share of the
    /// [working set](WORKING_SET). The schemes know it themselves.
    Returns,
}

/// How a figure of the user gets to the schemes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Feed {
    /// It is the number in the file at this path.
    File(Arc<str>),
    /// A program gives it by this name while the schemes run.
    Named(Arc<str>),
}

/// A memory node, and whose use of it counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodePart {
    /// The node.
    pub node: NodeId,
    /// The cgroup whose memory counts as used, with the cgroups below it; all other memory of the node counts as free.
    /// It is a path from the root of the hierarchy such as `/system.slice/redis.service`. `None` for all memory.
    pub cgroup: Option<Arc<str>>,
}

/// Whose waiting counts, and over what time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CgroupPressure {
    /// The cgroup, as a path from the root of the hierarchy. `None` for those of the targets: the one that waits most
    /// counts.
    pub cgroup: Option<Arc<str>>,
    /// Which tasks wait.
    pub waiting: Waiting,
    /// Over what time.
    pub window: PressureWindow,
}

/// Which tasks of a cgroup wait for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// Some task.
    Some,
    /// All tasks that do not sleep, at once.
    Full,
}

/// The time over which the kernel gives a mean of the pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PressureWindow {
    /// 10 s (`avg10`).
    TenSeconds,
    /// 60 s (`avg60`).
    Minute,
}

impl PressureWindow {
    /// Its length.
    pub const fn length(self) -> Duration {
        match self {
            Self::TenSeconds => Duration::from_secs(10),
            Self::Minute => Duration::from_secs(60),
        }
    }
}

/// Reads metrics. A metric is read only if a watermark or a goal needs it.
pub trait Gauges {
    /// Checks that the metric can be read here. It is called before the first application of a scheme that needs
    /// the metric.
    ///
    /// # Errors
    /// Says why the metric cannot be read and how to fix that.
    fn supports(&mut self, _metric: &Metric) -> Result<(), BoxError> {
        Ok(())
    }

    /// The value of the metric now, or `None` if it cannot be read now. `snapshot` is the last one. It is empty
    /// while nothing is monitored.
    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64>;

    /// The bytes that the metric is a share of, if each byte that an action moves or frees changes the metric by one
    /// part of them. Then it is known how many bytes a goal is away. `None` if that has to be found out by trying.
    fn size(&mut self, _metric: &Metric) -> Option<u64> {
        None
    }
}

/// Gauges without a value for any metric. With them every scheme is awake, and goals do not change quotas.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGauges;

impl Gauges for NoGauges {
    fn read(&mut self, _metric: &Metric, _snapshot: &Snapshot) -> Option<f64> {
        None
    }
}

impl<G: Gauges + ?Sized> Gauges for Box<G> {
    fn supports(&mut self, metric: &Metric) -> Result<(), BoxError> {
        (**self).supports(metric)
    }

    fn read(&mut self, metric: &Metric, snapshot: &Snapshot) -> Option<f64> {
        (**self).read(metric, snapshot)
    }

    fn size(&mut self, metric: &Metric) -> Option<u64> {
        (**self).size(metric)
    }
}
