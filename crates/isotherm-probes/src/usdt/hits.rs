//! What the eBPF programs report.

use std::time::Duration;

use super::UsdtProbe;

/// A report of `hits.bpf.c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// A process has executed a probe.
    Hit {
        /// When, by `CLOCK_MONOTONIC`.
        time: Duration,
        pid: u32,
        /// The index of the probe.
        probe: u32,
        /// The string that its first argument points to; empty if there is none.
        text: Vec<u8>,
    },
    /// A process executes a new program.
    NewProgram { pid: u32 },
}

/// The length of `struct hit` without its text.
const HEAD: usize = 24;
/// Stands for the index of a probe.
const NEW_PROGRAM: u32 = u32::MAX;

impl Report {
    /// Reads a `struct hit`. `None` if the bytes are none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (head, text) = bytes.split_at_checked(HEAD)?;
        let time = head.first_chunk().copied().map(u64::from_ne_bytes)?;
        let int = |nth: usize| Some(u32::from_ne_bytes(*head.get(8 + nth * 4..)?.first_chunk()?));
        let (pid, probe) = (int(0)?, int(1)?);
        if probe == NEW_PROGRAM {
            return Some(Self::NewProgram { pid });
        }
        Some(Self::Hit { time: Duration::from_nanos(time), pid, probe, text: text.get(..int(2)? as usize)?.to_vec() })
    }
}

/// The text of a hit: that of its argument if there is more than white space in it, or else the name of the probe.
pub(super) fn text(probe: &UsdtProbe, argument: Vec<u8>) -> Vec<u8> {
    if argument.trim_ascii().is_empty() { probe.to_string().into_bytes() } else { argument }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn report(probe: u32, length: u32) -> Vec<u8> {
        let ints = [42, probe, length, 0].into_iter().flat_map(u32::to_ne_bytes);
        5_u64.to_ne_bytes().into_iter().chain(ints).chain(*b"load\0\0\0\0").collect()
    }

    #[test]
    fn a_hit_has_the_bytes_of_its_text() {
        let time = Duration::from_nanos(5);
        assert_eq!(Report::read(&report(3, 4)), Some(Report::Hit { time, pid: 42, probe: 3, text: b"load".into() }));
        assert_eq!(Report::read(&report(NEW_PROGRAM, 0)), Some(Report::NewProgram { pid: 42 }));
        assert_eq!(Report::read(&report(3, 9)), None);
        assert_eq!(Report::read(&report(3, 0)[..HEAD - 1]), None);
    }

    #[test]
    fn a_hit_without_a_text_has_the_name_of_its_probe() {
        let probe: UsdtProbe = "isotherm:mark".parse().unwrap();
        assert_eq!(text(&probe, b"load".into()), b"load");
        assert_eq!(text(&probe, b" \n".into()), b"isotherm:mark");
    }
}
