//! `isotherm import`: imports recordings of other tools.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use isotherm_core::units;

use crate::cli::{Import, ImportDamo, ImportFrom};
use crate::progress::Progress;
use crate::tell;

pub fn run(options: &Import) -> Result<ExitCode> {
    match &options.from {
        ImportFrom::Damo(options) => damo(options),
    }
}

fn damo(options: &ImportDamo) -> Result<ExitCode> {
    let output = options.output.clone().unwrap_or_else(|| recording_of(&options.file));
    let imported = {
        let version = env!("CARGO_PKG_VERSION");
        isotherm_damo::import_within(&options.file, &output, &options.pid, version, options.max_memory)?
    };
    for note in &imported.notes {
        tell(format_args!("isotherm: {note}"));
    }
    let progress = Progress::new(options.quiet);
    let path = output.display();
    progress.done(format_args!("{} snapshots, {} in {path}", imported.snapshots, units::bytes(imported.bytes)));
    for (target, what) in &imported.targets {
        match target.pid() {
            None => progress.done(format_args!("target 0: {target}")),
            Some(pid) if what.is_empty() => progress.done(format_args!("target {pid}: the process with this ID")),
            Some(pid) => {
                progress.done(format_args!("target {pid}: {what}; its process is not known (name it with --pid)"));
            }
        }
    }
    progress.done(format_args!("next: isotherm report summary {path}; isotherm report heatmap {path}"));
    Ok(ExitCode::SUCCESS)
}

/// The path of the recording for an imported file: the same path without the extensions of damo, with `.rec`.
fn recording_of(file: &Path) -> PathBuf {
    let plain = file.with_extension("");
    let plain =
        if plain.extension().is_some_and(|extension| extension == "damo") { plain.with_extension("") } else { plain };
    let mut name = plain.into_os_string();
    name.push(".rec");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_named_after_the_imported_file() {
        for (file, recording) in [
            ("damon.data", "damon.rec"),
            ("/tmp/x.damo.json", "/tmp/x.rec"),
            ("x.damo", "x.rec"),
            ("x.1.json", "x.1.rec"),
            ("./x", "./x.rec"),
            ("run.d/x", "run.d/x.rec"),
        ] {
            assert_eq!(recording_of(Path::new(file)), Path::new(recording));
        }
    }
}
