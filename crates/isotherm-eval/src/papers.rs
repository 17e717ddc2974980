//! The figures of the DAMON papers: means of five runs of PARSEC3 and SPLASH-2X workloads.

use serde::{Deserialize, Serialize};

use crate::Configuration;
use crate::report::Metric;

/// A document of DAMON with tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Paper {
    /// DAMON v24, Linux 5.10: all configurations.
    V24,
    /// DAMON v8, Linux 5.6: all but `prec`.
    V8,
    /// Operation schemes, Linux 5.5: `thp` and `ethp`.
    Schemes,
}

/// A table as CSV: a header with the names of configurations, a row for each workload, and a total, which is not used.
const fn table(paper: Paper, metric: Metric) -> Option<&'static str> {
    match (paper, metric) {
        (Paper::V24, Metric::Runtime) => Some(include_str!("../papers/v24-runtime-seconds.csv")),
        (Paper::V24, Metric::System) => Some(include_str!("../papers/v24-memused-avg-kib.csv")),
        (Paper::V24, Metric::Rss) => Some(include_str!("../papers/v24-rss-avg-kib.csv")),
        (Paper::V8, Metric::Runtime) => Some(include_str!("../papers/v8-runtime-seconds.csv")),
        (Paper::V8, Metric::System) => Some(include_str!("../papers/v8-memused-avg-kib.csv")),
        (Paper::V8, Metric::Rss) => Some(include_str!("../papers/v8-rss-avg-kib.csv")),
        (Paper::Schemes, Metric::Runtime) => Some(include_str!("../papers/ethp-runtime-seconds.csv")),
        (Paper::Schemes, Metric::System) => Some(include_str!("../papers/ethp-memused-avg-kib.csv")),
        (Paper::Schemes, Metric::Rss) => None,
    }
}

impl Paper {
    /// All papers, the one that is shown by default first.
    pub const ALL: [Self; 3] = [Self::V24, Self::V8, Self::Schemes];

    /// The name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V24 => "v24",
            Self::V8 => "v8",
            Self::Schemes => "schemes",
        }
    }

    /// What it is.
    pub const fn about(self) -> &'static str {
        match self {
            Self::V24 => "DAMON v24, Linux 5.10, 36 processors, 130 GB",
            Self::V8 => "DAMON v8, Linux 5.6",
            Self::Schemes => "operation schemes of DAMON, Linux 5.5",
        }
    }

    /// The names of its workloads.
    pub fn workloads(self) -> Vec<&'static str> {
        self.rows(Metric::Runtime).map(|(name, _)| name).collect()
    }

    /// The rows of a table: a workload, and its means by configuration, in seconds or KiB.
    fn rows(self, metric: Metric) -> impl Iterator<Item = (&'static str, Vec<(Configuration, f64)>)> {
        let mut lines = table(self, metric).unwrap_or_default().lines();
        let header: Vec<_> = lines.next().unwrap_or_default().split(',').skip(1).map(Configuration::named).collect();
        lines.filter_map(move |line| {
            let (name, cells) = line.split_once(',')?;
            let values = header.iter().zip(cells.split(',')).map(|(&of, value)| Some((of?, value.parse().ok()?)));
            (name != "total").then_some((name, values.collect::<Option<Vec<_>>>()?))
        })
    }

    /// The mean of a workload. `None` if the paper does not have it.
    pub(crate) fn mean(self, metric: Metric, workload: &str, configuration: Configuration) -> Option<f64> {
        let (_, values) = self.rows(metric).find(|(name, _)| *name == workload)?;
        values.into_iter().find(|(of, _)| *of == configuration).map(|(_, value)| value)
    }

    /// The change of a workload to `orig`, in per cent.
    pub(crate) fn change(self, metric: Metric, workload: &str, configuration: Configuration) -> Option<f64> {
        let [before, after] = [Configuration::Orig, configuration].map(|of| self.mean(metric, workload, of));
        Some((after? / before? - 1.0) * 100.0)
    }

    /// The changes of the total and on the average over these workloads, in per cent. `None` if it has none of them.
    pub(crate) fn summary(self, metric: Metric, names: &[&str], configuration: Configuration) -> Option<[f64; 2]> {
        let of = |name: &&str, configuration| self.mean(metric, name, configuration);
        let pairs: Vec<(f64, f64)> =
            names.iter().filter_map(|name| Some((of(name, Configuration::Orig)?, of(name, configuration)?))).collect();
        let (before, after) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        let average = pairs.iter().map(|(before, after)| after / before - 1.0).sum::<f64>() / pairs.len() as f64;
        (!pairs.is_empty()).then_some([(after / before - 1.0) * 100.0, average * 100.0])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn totals_are_those_that_the_papers_give() {
        use Configuration::{Ethp, Prcl, Prec, Rec, Thp};
        let of = |paper: Paper, metric, configuration| {
            paper.summary(metric, &paper.workloads(), configuration).map(|[total, _]| (total * 100.0).round() / 100.0)
        };
        assert_eq!([Paper::V24, Paper::V8, Paper::Schemes].map(|paper| paper.workloads().len()), [24, 25, 25]);
        for (configuration, runtime, system) in
            [(Rec, 1.16, 0.39), (Prec, -0.11, -1.30), (Thp, -5.60, 8.47), (Ethp, -2.87, 2.02), (Prcl, 7.64, -6.14)]
        {
            let found = [Metric::Runtime, Metric::System].map(|metric| of(Paper::V24, metric, configuration).unwrap());
            assert!(
                (found[0] - runtime).abs() < 0.02 && (found[1] - system).abs() < 0.02,
                "{configuration:?} {found:?}"
            );
        }
        assert_eq!(of(Paper::V8, Metric::Runtime, Rec), Some(0.45));
        assert_eq!(of(Paper::V8, Metric::Runtime, Prec), None);
        assert_eq!(of(Paper::Schemes, Metric::Rss, Thp), None);
    }

    #[test]
    fn a_workload_has_its_change() {
        let change = Paper::V24.change(Metric::Rss, "parsec3/freqmine", Configuration::Prcl).unwrap();
        assert!((change + 93.38).abs() < 0.01, "{change}");
        assert_eq!(Paper::V24.change(Metric::Rss, "redis", Configuration::Prcl), None);
    }
}
