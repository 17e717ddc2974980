//! `isotherm convert`: writes a recording in another format.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_record::Recording;

use crate::cli::Convert;
use crate::{WrongCall, tell};

/// A format, by the crate that writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Own(isotherm_record::Format),
    Damo(isotherm_damo::Format),
}

/// The default name of a recording of damo.
const DAMO_NAME: &str = "damon.data";

pub fn run(options: &Convert) -> Result<ExitCode> {
    let recording = Recording::open_within(&options.recording, options.reading.max_memory)?;
    let output = &options.output;
    match format(output) {
        Some(Format::Own(format)) => isotherm_record::convert(&recording, output, format)?,
        Some(Format::Damo(format)) => {
            for note in isotherm_damo::export(&recording, output, format)? {
                tell(format_args!("isotherm: {note}"));
            }
        }
        None => {
            let known = ".rec, .parquet, .csv, .json, .damo or .damo.json";
            let what =
                format!("the name {} does not select a format; use a name that ends in {known}", output.display());
            return Err(WrongCall::new("convert", what).into());
        }
    }
    Ok(ExitCode::SUCCESS)
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
