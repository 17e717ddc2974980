//! The bodies of the fuzz targets: each is a function of arbitrary bytes that panics if it finds a defect.
//!
//! `fuzz/fuzz_targets` runs them with libFuzzer, and `tests/properties.rs` runs them on a fixed number of inputs. See
//! `fuzz/README.md`.

#![forbid(unsafe_code)]

mod damo;
mod kernel;
mod names;
mod pattern;
mod recording;
mod schemes;
mod scratch;

pub use damo::damo_import;
pub use kernel::{proc_readers, tracepoint_format};
pub use names::{container_names, perf_map};
pub use pattern::pattern_toml;
pub use recording::{recording_convert, recording_reader};
pub use schemes::{scheme_damo, scheme_lines, scheme_yaml};

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its function.
    pub name: &'static str,
    /// Runs the target on an input.
    ///
    /// # Panics
    /// If the input reveals a defect.
    pub run: fn(&[u8]),
    /// Valid inputs, to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 11] = [
    Target { name: "recording_reader", run: recording_reader, seeds: recording::seeds },
    Target { name: "recording_convert", run: recording_convert, seeds: recording::seeds },
    Target { name: "scheme_yaml", run: scheme_yaml, seeds: schemes::yaml_seeds },
    Target { name: "scheme_lines", run: scheme_lines, seeds: schemes::line_seeds },
    Target { name: "scheme_damo", run: scheme_damo, seeds: schemes::damo_seeds },
    Target { name: "pattern_toml", run: pattern_toml, seeds: pattern::seeds },
    Target { name: "damo_import", run: damo_import, seeds: damo::seeds },
    Target { name: "tracepoint_format", run: tracepoint_format, seeds: kernel::format_seeds },
    Target { name: "proc_readers", run: proc_readers, seeds: kernel::proc_seeds },
    Target { name: "container_names", run: container_names, seeds: names::container_seeds },
    Target { name: "perf_map", run: perf_map, seeds: names::perf_map_seeds },
];

fn bytes(seeds: &[&str]) -> Vec<Vec<u8>> {
    seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect()
}
