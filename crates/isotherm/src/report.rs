//! `isotherm report`: shows a recording.

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use isotherm_output::{Output, OutputError, OutputFile, standard_output};
use isotherm_record::{Joined, RecordError, Recording};
use isotherm_report::{
    Format, GroupBy, Kind, Limits, Options, ReportError, Sort, Source, SummarySort, Terminal, UnknownExtension,
};

use crate::cli::{RegionOptions, Report, ReportFormat, ReportKind, SortKey};
use crate::terminal::terminal;
use crate::{WrongCall, tell};

pub fn run(options: &Report) -> Result<ExitCode> {
    let kind = kind(options.kind);
    let format = chosen_format("report", options.format, options.output.as_deref())?;
    let format = format.unwrap_or(kind.default_format());
    if kind == Kind::Html && format != Format::Html {
        let what = "the kind html is an HTML page; leave out --format, or choose another kind";
        return Err(WrongCall::new("report", what).into());
    }
    if !kind.formats().contains(&format) {
        return Err(WrongCall::new("report", ReportError::Unsupported { kind, format }.to_string()).into());
    }
    let page = format == Format::Html;
    let to_terminal = options.output.is_none() && stdout().is_terminal();
    if to_terminal && (format.is_binary() || page) {
        let what = format!("{} cannot be shown on a terminal; name a file with -o", format.name());
        return Err(WrongCall::new("report", what).into());
    }

    check_region_options(&options.regions, kind, format)?;
    let (sort, summary_sort) = sort(options.sort, kind, format)?;
    let grouped = page || matches!(kind, Kind::IdleTime | Kind::Temperature | Kind::Summary | Kind::Wss);
    if options.by.is_some() && !grouped {
        let of = "it is for the page, and for the reports idle-time, temperature, summary and wss";
        let what = format!("--by has no effect on the report {}; {of}", kind.name());
        return Err(WrongCall::new("report", what).into());
    }
    if options.by == Some(GroupBy::Stack) && (page || kind != Kind::Summary) {
        let what = "--by stack is for the report summary as text, JSON and a picture";
        return Err(WrongCall::new("report", what).into());
    }
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

    let source = open(&options.recordings, options.reading.max_memory)?;
    let selection = options.selection.selection();
    let chosen = &options.regions;
    let regions = isotherm_report::RegionOptions {
        at: chosen.at,
        sort,
        rate: Limits { min: chosen.min_rate, max: chosen.max_rate },
        age: Limits { min: chosen.min_age, max: chosen.max_age },
        size: Limits { min: chosen.min_size, max: chosen.max_size },
    };
    let terminal = if options.output.is_none() { terminal() } else { Terminal::default() };
    let (by, window, measure) = (options.by, options.window, options.measure);
    let report = Options { terminal, regions, by, summary_sort, window, measure, ..Options::default() };
    let inputs = &options.recordings;
    let write = |out: &mut dyn Write| isotherm_report::write(kind, format, &*source, &selection, &report, out);
    match &options.output {
        None => write(&mut standard_output().apart_from(inputs)?)?,
        Some(path) => write_file(Output::new(path).apart_from(inputs).create()?, write)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a recording, or several as one.
fn open(paths: &[PathBuf], max_memory: Option<u64>) -> Result<Box<dyn Source>> {
    let recordings = open_all(paths, max_memory)?;
    recordings.iter().for_each(warn_of_damage);
    Ok(match <[Recording; 1]>::try_from(recordings) {
        Ok([recording]) => Box::new(recording),
        Err(recordings) => Box::new(Joined::new(recordings)?),
    })
}

/// Opens each of these recordings.
pub fn open_all(paths: &[PathBuf], max_memory: Option<u64>) -> Result<Vec<Recording>, RecordError> {
    paths.iter().map(|path| Recording::open_within(path, max_memory)).collect()
}

fn kind(kind: ReportKind) -> Kind {
    match kind {
        ReportKind::Heatmap => Kind::Heatmap,
        ReportKind::Wss => Kind::Wss,
        ReportKind::Regions => Kind::Regions,
        ReportKind::Summary => Kind::Summary,
        ReportKind::IdleTime => Kind::IdleTime,
        ReportKind::Temperature => Kind::Temperature,
        ReportKind::Overhead => Kind::Overhead,
        ReportKind::Schemes => Kind::Schemes,
        ReportKind::Tune => Kind::Tune,
        ReportKind::Html => Kind::Html,
    }
}

/// The format that `--format` or the name of the output selects. `None` if neither does.
pub fn chosen_format(
    subcommand: &'static str,
    chosen: Option<ReportFormat>,
    output: Option<&Path>,
) -> Result<Option<Format>> {
    match (chosen, output) {
        (Some(format), _) => Ok(Some(match format {
            ReportFormat::Text => Format::Text,
            ReportFormat::Json => Format::Json,
            ReportFormat::Png => Format::Png,
            ReportFormat::Svg => Format::Svg,
            ReportFormat::Html => Format::Html,
        })),
        (None, Some(path)) => Ok(Format::of_file(path).map_err(|error| unknown_format(subcommand, &error))?),
        (None, None) => Ok(None),
    }
}

/// The error for a name of the output whose extension selects no format.
pub fn unknown_format(subcommand: &'static str, error: &UnknownExtension) -> WrongCall {
    WrongCall::new(subcommand, format!("{error}, or choose one with --format"))
}

/// Rejects options of `report regions` that would have no effect.
fn check_region_options(options: &RegionOptions, kind: Kind, format: Format) -> Result<()> {
    let wrong = |option: &str, what: String| Err(WrongCall::new("report", format!("{option} {what}")).into());
    let RegionOptions { at, min_rate, max_rate, min_age, max_age, min_size, max_size } = options;
    let given = [
        ("--at", at.is_some()),
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
        _ => Ok(()),
    }
}

/// How regions, and how groups and mappings, are sorted. Rejects a key that would have no effect.
fn sort(key: Option<SortKey>, kind: Kind, format: Format) -> Result<(Sort, SummarySort)> {
    let (mut regions, mut summary) = (Sort::default(), SummarySort::default());
    let Some(key) = key else { return Ok((regions, summary)) };
    let wrong = |what: String| Err(WrongCall::new("report", format!("--sort {what}")).into());
    match (kind, key) {
        _ if format == Format::Html => return wrong("has no effect on the HTML page; leave it out".into()),
        (Kind::Regions, _) if matches!(format, Format::Png | Format::Svg) => {
            return wrong("has no effect on a picture, which shows regions by address; leave it out".into());
        }
        (Kind::Regions, SortKey::Address) => regions = Sort::Address,
        (Kind::Regions, SortKey::Rate) => regions = Sort::Rate,
        (Kind::Regions, SortKey::Age) => regions = Sort::Age,
        (Kind::Regions, SortKey::Size) => regions = Sort::Size,
        (Kind::Summary, SortKey::Size) => summary = SummarySort::Size,
        (Kind::Summary, SortKey::Wss) => summary = SummarySort::Wss,
        (Kind::Summary, SortKey::Hot) => summary = SummarySort::Hot,
        (Kind::Summary, SortKey::Cold) => summary = SummarySort::Cold,
        (Kind::Summary, SortKey::Name) => summary = SummarySort::Name,
        (Kind::Regions, _) => return wrong("sorts regions by address, rate, age or size".into()),
        (Kind::Summary, _) => return wrong("sorts a summary by size, wss, hot, cold or name".into()),
        _ => {
            let what = "it is an option of the reports regions and summary";
            return wrong(format!("has no effect on the report {}; {what}", kind.name()));
        }
    }
    Ok((regions, summary))
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
