//! The measured programs: patterns of `isotherm workload`, and real programs.

use isotherm_sim::Pattern;

use super::Configuration;
use super::machine::Machine;

/// A program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// How it runs.
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A pattern, with this number of touches, made as fast as possible.
    Pattern { touches: u64 },
    /// redis-server with this number of keys; one in 25 of them is read.
    Redis { keys: u64, requests: u64 },
    /// sqlite3 in memory with this number of rows; one in 20 of them is queried.
    Sqlite { rows: u64, queries: u64 },
    /// Python with numpy: this number of training steps.
    Numpy { steps: u64 },
    /// The C compiler proper on this number of functions.
    Compiler { functions: u64 },
    /// Python with numpy and a mapped file: all of it is summed once, then its first sixteenth `sums` times.
    File { bytes: u64, sums: u64 },
    /// sqlite3 with a mapped database of this number of rows; one in 20 of them is queried.
    SqliteFile { rows: u64, queries: u64 },
}

/// The programs of the laboratory.
const LABORATORY: [Workload; 8] = [
    pattern("hot-small-in-huge", "4 MiB hot in 256 MiB", 240_000_000),
    pattern("periodic", "64 MiB of 256 MiB, in turn hot for a while and cold for 3 s", 60_000_000),
    pattern("zipfian", "256 MiB, the n-th page touched in proportion to 1/n", 12_000_000),
    pattern("all-hot", "256 MiB hot", 80_000_000),
    Workload {
        name: "redis",
        about: "redis-server: writes 60,000 values of 1,000 bytes, then reads one in 25 of them",
        kind: Kind::Redis { keys: 60_000, requests: 250_000 },
    },
    Workload {
        name: "sqlite3",
        about: "a database in memory: writes 60,000 rows, then queries one in 20 of them",
        kind: Kind::Sqlite { rows: 60_000, queries: 400_000 },
    },
    Workload {
        name: "numpy",
        about: "Python with numpy: trains a model on hashed words, with weights in a sparse table of 128 MiB",
        kind: Kind::Numpy { steps: 600 },
    },
    Workload { name: "cc1", about: "the C compiler: 90 functions at -O1", kind: Kind::Compiler { functions: 90 } },
];

/// The programs of any other machine, which is faster and may have no swap.
const HERE: [Workload; 8] = [
    pattern("hot-small-in-huge", "4 MiB hot in 256 MiB", 1_200_000_000),
    pattern("zipfian", "256 MiB, the n-th page touched in proportion to 1/n", 50_000_000),
    pattern("all-hot", "256 MiB hot", 350_000_000),
    Workload {
        name: "redis",
        about: "redis-server: writes 200,000 values of 1,000 bytes, then reads one in 25 of them",
        kind: Kind::Redis { keys: 200_000, requests: 2_000_000 },
    },
    Workload {
        name: "sqlite3",
        about: "a database in memory: writes 300,000 rows, then queries one in 20 of them",
        kind: Kind::Sqlite { rows: 300_000, queries: 3_000_000 },
    },
    Workload {
        name: "numpy",
        about: "Python with numpy: trains a model on hashed words, with weights in a sparse table of 128 MiB",
        kind: Kind::Numpy { steps: 9_000 },
    },
    Workload {
        name: "numpy-file",
        about: "Python with numpy: sums a mapped file of 512 MiB, then a sixteenth of it again and again",
        kind: Kind::File { bytes: 512 << 20, sums: 14_000 },
    },
    Workload {
        name: "sqlite3-file",
        about: "sqlite3 with a mapped database of 500,000 rows: reads all once, then queries one in 20",
        kind: Kind::SqliteFile { rows: 500_000, queries: 7_000_000 },
    },
];

const fn pattern(name: &'static str, about: &'static str, touches: u64) -> Workload {
    Workload { name, about, kind: Kind::Pattern { touches } }
}

impl Workload {
    /// The programs for `machine`.
    pub fn all(machine: Machine) -> &'static [Self] {
        match machine {
            Machine::Laboratory => &LABORATORY,
            Machine::Here => &HERE,
        }
    }

    /// The program of this name.
    pub fn named(machine: Machine, name: &str) -> Option<Self> {
        Self::all(machine).iter().find(|workload| workload.name == name).copied()
    }

    /// The configurations that make sense for it on `machine`.
    pub fn configurations(&self, machine: Machine) -> &'static [Configuration] {
        let of_a_file = matches!(self.kind, Kind::File { .. } | Kind::SqliteFile { .. });
        match machine {
            Machine::Laboratory => {
                &[Configuration::Orig, Configuration::Thp, Configuration::Ethp, Configuration::Prcl, Configuration::Rec]
            }
            // Without swap only file-backed memory can be reclaimed, and the kernel makes no huge pages of it.
            Machine::Here if of_a_file => &[Configuration::Orig, Configuration::Prcl, Configuration::Rec],
            Machine::Here => &[Configuration::Orig, Configuration::Thp, Configuration::Ethp, Configuration::Rec],
        }
    }

    /// The built-in pattern of the same name.
    pub(crate) fn pattern(&self) -> anyhow::Result<Pattern> {
        Ok(Pattern::shipped(self.name)?)
    }
}
