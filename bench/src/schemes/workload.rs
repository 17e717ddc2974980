//! The programs: patterns of `isotherm workload`, and real ones.

use isotherm_sim::Pattern;

use super::Configuration;
use super::machine::Machine;

/// A program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// As it is called.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// How it does it.
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A pattern, with so many touches in all, as fast as they can be made.
    Pattern { touches: u64 },
    /// redis-server with so many keys, and so many requests for one in 25 of them.
    Redis { keys: u64, requests: u64 },
    /// sqlite3 with so many rows, and so many queries for one in 20 of them.
    Sqlite { rows: u64, queries: u64 },
    /// Python with numpy, so many steps.
    Numpy { steps: u64 },
    /// The C compiler proper, for so many functions.
    Compiler { functions: u64 },
    /// Python with numpy and a mapped file of so many bytes: all summed up once, and then one in 16 of them so many times.
    File { bytes: u64, sums: u64 },
    /// sqlite3 with a mapped file of so many rows, and so many queries for one in 20 of them.
    SqliteFile { rows: u64, queries: u64 },
}

/// Those of the laboratory.
const LABORATORY: [Workload; 8] = [
    pattern("hot-small-in-huge", "4 MiB hot in 256 MiB", 240_000_000),
    pattern("periodic", "64 MiB of 256 MiB hot for a while, cold for 3 s, in turn", 60_000_000),
    pattern("zipfian", "256 MiB, the n-th page touched in proportion to 1/n", 12_000_000),
    pattern("all-hot", "256 MiB hot", 80_000_000),
    Workload {
        name: "redis",
        about: "redis-server: 60,000 values of 1,000 bytes written, then one in 25 of them asked for",
        kind: Kind::Redis { keys: 60_000, requests: 250_000 },
    },
    Workload {
        name: "sqlite3",
        about: "a database in memory: 60,000 rows written, then one in 20 of them asked for",
        kind: Kind::Sqlite { rows: 60_000, queries: 400_000 },
    },
    Workload {
        name: "numpy",
        about: "Python with numpy: a model trained by hashed words, its weights in a sparse table of 128 MiB",
        kind: Kind::Numpy { steps: 600 },
    },
    Workload { name: "cc1", about: "the C compiler: 90 functions at -O1", kind: Kind::Compiler { functions: 90 } },
];

/// Those of the machine itself, which is faster and need not have swap.
const HERE: [Workload; 8] = [
    pattern("hot-small-in-huge", "4 MiB hot in 256 MiB", 1_200_000_000),
    pattern("zipfian", "256 MiB, the n-th page touched in proportion to 1/n", 50_000_000),
    pattern("all-hot", "256 MiB hot", 350_000_000),
    Workload {
        name: "redis",
        about: "redis-server: 200,000 values of 1,000 bytes written, then one in 25 of them asked for",
        kind: Kind::Redis { keys: 200_000, requests: 2_000_000 },
    },
    Workload {
        name: "sqlite3",
        about: "a database in memory: 300,000 rows written, then one in 20 of them asked for",
        kind: Kind::Sqlite { rows: 300_000, queries: 3_000_000 },
    },
    Workload {
        name: "numpy",
        about: "Python with numpy: a model trained by hashed words, its weights in a sparse table of 128 MiB",
        kind: Kind::Numpy { steps: 9_000 },
    },
    Workload {
        name: "numpy-file",
        about: "Python with numpy: a file of 512 MiB mapped and summed up, then a sixteenth of it again and again",
        kind: Kind::File { bytes: 512 << 20, sums: 14_000 },
    },
    Workload {
        name: "sqlite3-file",
        about: "sqlite3 with a mapped database of 500,000 rows: all read once, then one in 20 asked for",
        kind: Kind::SqliteFile { rows: 500_000, queries: 7_000_000 },
    },
];

const fn pattern(name: &'static str, about: &'static str, touches: u64) -> Workload {
    Workload { name, about, kind: Kind::Pattern { touches } }
}

impl Workload {
    /// Those of this machine.
    pub fn all(machine: Machine) -> &'static [Self] {
        match machine {
            Machine::Laboratory => &LABORATORY,
            Machine::Here => &HERE,
        }
    }

    /// The one of this name.
    pub fn named(machine: Machine, name: &str) -> Option<Self> {
        Self::all(machine).iter().find(|workload| workload.name == name).copied()
    }

    /// The configurations that tell something of it on this machine.
    pub fn configurations(&self, machine: Machine) -> &'static [Configuration] {
        let of_a_file = matches!(self.kind, Kind::File { .. } | Kind::SqliteFile { .. });
        match machine {
            Machine::Laboratory => {
                &[Configuration::Orig, Configuration::Thp, Configuration::Ethp, Configuration::Prcl, Configuration::Rec]
            }
            // Without swap, only memory of files can be reclaimed; and of files, no huge pages are made.
            Machine::Here if of_a_file => &[Configuration::Orig, Configuration::Prcl, Configuration::Rec],
            Machine::Here => &[Configuration::Orig, Configuration::Thp, Configuration::Ethp, Configuration::Rec],
        }
    }

    /// The pattern of its name.
    pub(crate) fn pattern(&self) -> anyhow::Result<Pattern> {
        Ok(Pattern::shipped(self.name)?)
    }
}
