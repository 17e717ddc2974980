//! CSV: one line per region, with a heading; numbers are decimal.

use std::fs::File;
use std::io::{self, BufWriter};

use super::{FormatWriter, flat};
use crate::{Recording, Row};

/// The heading, which is there even when no line follows.
const HEADING: [&str; 22] = [
    "time_ns",
    "pid",
    "start",
    "end",
    "nr_accesses",
    "samples",
    "access_rate",
    "age_ns",
    "nr_unobservable",
    "mapping",
    "nr_samples",
    "target_type",
    "start_ns",
    "cgroup",
    "present_bytes",
    "touched_bytes",
    "unobservable_bytes",
    "unknown_bytes",
    "swapped_bytes",
    "absent_bytes",
    "aggregation_ns",
    "access_hz",
];

pub(super) struct Csv {
    writer: csv::Writer<BufWriter<File>>,
    from_boot: bool,
}

impl FormatWriter for Csv {
    fn begin(recording: &Recording, output: BufWriter<File>) -> io::Result<Self> {
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(output);
        writer.write_record(HEADING)?;
        Ok(Self { writer, from_boot: recording.header().host.counts_from_boot() })
    }

    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        for line in flat::lines(row, self.from_boot) {
            self.writer.serialize(line)?;
        }
        Ok(())
    }

    fn end(self) -> io::Result<BufWriter<File>> {
        self.writer.into_inner().map_err(|error| error.into_error())
    }
}
