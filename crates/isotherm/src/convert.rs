//! `isotherm convert`: writes a recording in another format.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_core::units;
use isotherm_record::Recording;

use crate::cli::Convert;
use crate::progress::Progress;
use crate::{WrongCall, tell};

/// A format, by the crate that writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Own(isotherm_record::Format),
    Damo(isotherm_damo::Format),
}

/// The default name of a recording of damo.
const DAMO_NAME: &str = "damon.data";

const SUBCOMMAND: &str = "convert";

pub fn run(options: &Convert) -> Result<ExitCode> {
    let (input, output) = (&options.recording, &options.output);
    let Some(format) = format(output) else {
        let known = ".rec, .parquet, .csv, .json, .damo or .damo.json";
        let what = format!("the name {} does not select a format; use a name that ends in {known}", output.display());
        return Err(WrongCall::new(SUBCOMMAND, what).into());
    };
    if isotherm_damo::is_recording(input)? {
        import(options, format)?;
        return Ok(ExitCode::SUCCESS);
    }
    let recording = Recording::open_within(input, options.reading.max_memory)?;
    if !options.pid.is_empty() {
        let what = format!("{} has the process IDs of its targets; leave out --pid", input.display());
        return Err(WrongCall::new(SUBCOMMAND, what).into());
    }
    match format {
        Format::Own(format) => isotherm_record::convert(&recording, output, format)?,
        Format::Damo(format) => {
            for note in isotherm_damo::export(&recording, output, format)? {
                tell(format_args!("isotherm: {note}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a recording of one of damo.
fn import(options: &Convert, format: Format) -> Result<()> {
    let Convert { recording: input, output, .. } = options;
    if format != Format::Own(isotherm_record::Format::Recording) {
        let what = format!("{} is a recording of damo; convert it to a name that ends in .rec first", input.display());
        return Err(WrongCall::new(SUBCOMMAND, what).into());
    }
    let version = env!("CARGO_PKG_VERSION");
    let imported = isotherm_damo::import_within(input, output, &options.pid, version, options.reading.max_memory)?;
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
    Ok(())
}

/// The format that the name of the output selects.
fn format(output: &Path) -> Option<Format> {
    use isotherm_damo::Format::{Json as DamoJson, JsonCompressed};
    use isotherm_record::Format::{Csv, Json, Parquet, Recording};

    let name = output.file_name()?.to_str()?;
    if name == DAMO_NAME {
        return Some(Format::Damo(JsonCompressed));
    }
    match output.extension()?.to_str()? {
        "damo" => Some(Format::Damo(JsonCompressed)),
        "json" if name.ends_with(".damo.json") => Some(Format::Damo(DamoJson)),
        "rec" => Some(Format::Own(Recording)),
        "parquet" => Some(Format::Own(Parquet)),
        "csv" => Some(Format::Own(Csv)),
        "json" => Some(Format::Own(Json)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use isotherm_damo::Format::{Json as DamoJson, JsonCompressed};
    use isotherm_record::Format::{Csv, Json, Parquet, Recording};

    use super::*;

    #[test]
    fn the_name_of_the_output_selects_the_format() {
        for (name, expected) in [
            ("a.rec", Some(Format::Own(Recording))),
            ("a.parquet", Some(Format::Own(Parquet))),
            ("/tmp/a.csv", Some(Format::Own(Csv))),
            ("a.json", Some(Format::Own(Json))),
            ("damo.json", Some(Format::Own(Json))),
            ("a.damo.json", Some(Format::Damo(DamoJson))),
            ("a.damo", Some(Format::Damo(JsonCompressed))),
            ("run/damon.data", Some(Format::Damo(JsonCompressed))),
            ("a.xlsx", None),
            ("a.data", None),
            ("a", None),
            ("csv", None),
            (".csv", None),
            ("..", None),
        ] {
            assert_eq!(format(Path::new(name)), expected, "{name}");
        }
    }
}
