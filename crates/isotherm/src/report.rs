//! `isotherm report`: shows a recording.

use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;

use anyhow::Result;
use isotherm_output::{Output, OutputError, OutputFile, standard_output};
use isotherm_record::Recording;
use isotherm_report::{
    Format, Kind, Limits, Options, ReportError, SelectedTarget, Selection, Sort, Terminal, UnknownExtension,
};

use crate::cli::{RegionOptions, Report, ReportFormat, ReportKind, SortKey};
use crate::terminal::terminal;
use crate::{WrongCall, tell};

pub fn run(options: &Report) -> Result<ExitCode> {
    let kind = kind(options.kind);
    let format = format(options, kind)?;
    if kind == Kind::Html && format != Format::Html {
        let what = "the kind html is an HTML page; leave out --format, or choose another kind";
        return Err(WrongCall::new("report", what).into());
    }
    if kind == Kind::Tune && !matches!(format, Format::Text | Format::Json) {
        let what = format!("there is no {} of the report tune; use --format text or json", format.name());
        return Err(WrongCall::new("report", what).into());
    }
    let to_terminal = options.output.is_none() && stdout().is_terminal();
    if to_terminal && matches!(format, Format::Png | Format::Html) {
        let what = format!("{} cannot be shown on a terminal; name a file with -o", format.name());
        return Err(WrongCall::new("report", what).into());
    }

    check_region_options(&options.regions, kind, format)?;
    let page = format == Format::Html;
    for (option, given, of) in
        [("--window", options.window.is_some(), Kind::Wss), ("--measure", options.measure.is_some(), Kind::Heatmap)]
    {
        // The page has a working set whatever the kind is, and shows access rates.
        let has_effect = if page { of == Kind::Wss } else { kind == of };
        if given && !has_effect {
            let what = if page { "the html page".into() } else { format!("the report {}", kind.name()) };
            let what = format!("{option} has no effect on {what}; it is an option of the report {}", of.name());
            return Err(WrongCall::new("report", what).into());
        }
    }

    let recording = Recording::open(&options.recording)?;
    warn_of_damage(&recording);
    let selection =
        Selection { time: options.time.clone(), address: options.address, target: options.target.map(selected) };
    let chosen = &options.regions;
    let regions = isotherm_report::RegionOptions {
        at: chosen.at,
        sort: match chosen.sort {
            None | Some(SortKey::Address) => Sort::Address,
            Some(SortKey::Rate) => Sort::Rate,
            Some(SortKey::Age) => Sort::Age,
            Some(SortKey::Size) => Sort::Size,
        },
        rate: Limits { min: chosen.min_rate, max: chosen.max_rate },
        age: Limits { min: chosen.min_age, max: chosen.max_age },
        size: Limits { min: chosen.min_size, max: chosen.max_size },
    };
    let terminal = if options.output.is_none() { terminal() } else { Terminal::default() };
    let report = Options { terminal, regions, window: options.window, measure: options.measure, ..Options::default() };
    let inputs = [&options.recording];
    let write = |out: &mut dyn Write| isotherm_report::write(kind, format, &recording, &selection, &report, out);
    match &options.output {
        None => write(&mut standard_output().apart_from(inputs)?)?,
        Some(path) => write_file(Output::new(path).apart_from(inputs).create()?, write)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn kind(kind: ReportKind) -> Kind {
    match kind {
        ReportKind::Heatmap => Kind::Heatmap,
        ReportKind::Wss => Kind::Wss,
        ReportKind::Regions => Kind::Regions,
        ReportKind::Summary => Kind::Summary,
        ReportKind::Overhead => Kind::Overhead,
        ReportKind::Schemes => Kind::Schemes,
        ReportKind::Tune => Kind::Tune,
        ReportKind::Html => Kind::Html,
    }
}

/// The format that `--format` or the name of the output selects, or the default format of the kind.
fn format(options: &Report, kind: Kind) -> Result<Format> {
    let chosen = options.format.map(|format| match format {
        ReportFormat::Text => Format::Text,
        ReportFormat::Json => Format::Json,
        ReportFormat::Png => Format::Png,
        ReportFormat::Svg => Format::Svg,
        ReportFormat::Html => Format::Html,
    });
    let named = match &options.output {
        Some(path) if chosen.is_none() => Format::of_file(path).map_err(|error| unknown_format("report", &error))?,
        _ => None,
    };
    Ok(chosen.or(named).unwrap_or(kind.default_format()))
}

/// The error for a name of the output whose extension selects no format.
pub fn unknown_format(subcommand: &'static str, error: &UnknownExtension) -> WrongCall {
    WrongCall::new(subcommand, format!("{error}, or choose one with --format"))
}

/// Rejects options of `report regions` that would have no effect.
fn check_region_options(options: &RegionOptions, kind: Kind, format: Format) -> Result<()> {
    let wrong = |option: &str, what: String| Err(WrongCall::new("report", format!("{option} {what}")).into());
    let RegionOptions { at, sort, min_rate, max_rate, min_age, max_age, min_size, max_size } = options;
    let given = [
        ("--at", at.is_some()),
        ("--sort", sort.is_some()),
        ("--min-rate", min_rate.is_some()),
        ("--max-rate", max_rate.is_some()),
        ("--min-age", min_age.is_some()),
        ("--max-age", max_age.is_some()),
        ("--min-size", min_size.is_some()),
        ("--max-size", max_size.is_some()),
    ];
    let first = given.into_iter().find_map(|(option, given)| given.then_some(option));
    match (first, kind, format) {
        (None, ..) => Ok(()),
        (Some(option), _, Format::Html) => wrong(option, "has no effect on the HTML page; leave it out".into()),
        (Some(option), kind, _) if kind != Kind::Regions => {
            wrong(option, format!("has no effect on the report {}; it is an option of the report regions", kind.name()))
        }
        (_, _, Format::Png | Format::Svg) if sort.is_some() => {
            wrong("--sort", "has no effect on a picture, which shows regions by address; leave it out".into())
        }
        _ => Ok(()),
    }
}

/// Says that a part of a recording is missing. Not all formats of reports have a place for it.
pub fn warn_of_damage(recording: &Recording) {
    if recording.is_header_corrected() {
        let path = recording.path().display();
        tell(format_args!("isotherm: one bit of the header of {path} is wrong; it was corrected by the checksum"));
    }
    if let Some(first) = recording.damage().first() {
        let (path, at, reason) = (recording.path().display(), first.start, first.reason);
        let what = "what cannot be read is missing, and `isotherm check` lists it";
        tell(format_args!("isotherm: the recording {path} is damaged at byte {at}: {reason}; {what}"));
    }
}

/// Lets `write` write a report to a file, which appears when it is whole.
pub fn write_file(file: OutputFile, write: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>) -> Result<()> {
    let mut writer = file.writer()?;
    write(&mut writer).and_then(|()| Ok(writer.flush()?)).map_err(|error| match error {
        ReportError::Write(source) => OutputError::new(file.path(), source).into(),
        error => anyhow::Error::from(error),
    })?;
    Ok(file.finish()?)
}

/// The target that `--target` selects: a process ID, or 0 for physical memory.
fn selected(number: u32) -> SelectedTarget {
    match number {
        0 => SelectedTarget::PhysicalMemory,
        pid => SelectedTarget::Process(pid),
    }
}
