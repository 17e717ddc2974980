//! `isotherm diff`: shows the difference of two recordings.

use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use isotherm_core::units;
use isotherm_record::Recording;
use isotherm_report::diff::{Diff, Side};
use isotherm_report::{Format, Options, Selection};

use crate::cli;
use crate::report::{Destination, warn_of_damage};

pub fn run(options: &cli::Diff) -> Result<ExitCode> {
    let to = Destination::new("diff", options.format, options.output.as_deref(), &Format::ALL)?;
    let after = options.after.as_ref().unwrap_or(&options.before);
    let open = |path| Recording::open_within(path, options.reading.max_memory);
    let recordings = [open(&options.before)?, open(after)?];
    recordings.iter().take(if options.after.is_some() { 2 } else { 1 }).for_each(warn_of_damage);
    let times = [options.time.clone(), options.with.clone().or_else(|| options.time.clone())];
    let names = names([&options.before, after], &times);
    let target = options.target.map(cli::selected);
    let selections = times.map(|time| Selection { time, target, ..Selection::default() });
    let side = |nth: usize| Side { name: &names[nth], source: &recordings[nth], selection: &selections[nth] };
    let diff = Diff::new(side(0), side(1), options.window)?;
    let report = Options { terminal: to.terminal(), ..Options::default() };
    to.write(&[&options.before, after], |out| diff.write(to.format, &report, out))
}

/// What the sides of the difference are called: the names of their files without directories if these differ, and their
/// parts.
fn names(paths: [&Path; 2], times: &[Option<Range<Duration>>; 2]) -> [String; 2] {
    let differ = paths[0].file_name() != paths[1].file_name();
    [0, 1].map(|nth| {
        let name = paths[nth].file_name().filter(|_| differ || paths[0] == paths[1]).unwrap_or(paths[nth].as_os_str());
        let name = name.to_string_lossy();
        match &times[nth] {
            None => name.into_owned(),
            Some(time) if time.end == Duration::MAX => format!("{name} from {}", units::duration(time.start)),
            Some(time) => format!("{name} from {} to {}", units::duration(time.start), units::duration(time.end)),
        }
    })
}
