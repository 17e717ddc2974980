//! The report for a terminal.

use std::io::{self, Write};
use std::time::Duration;

use isotherm_core::units;

use super::Tune;
use super::advice::Advice;
use super::working_set::{Window, WorkingSet};
use crate::colour::{UNKNOWN, UNOBSERVABLE, of_rate};
use crate::command::{shown_command, shown_pid};
use crate::escape::sanitise;
use crate::text::bar::{Part, stacked};
use crate::text::table::{Cell, Column, table};
use crate::text::{Terminal, cut, note, warning, width, wrap};
use crate::wss::Basis;

/// The indent of all that stands below a heading.
const INDENT: usize = 2;

/// Writes the warnings, the attributes, the working set and the advice.
pub(super) fn write(out: &mut dyn Write, terminal: &Terminal, tune: &Tune) -> io::Result<()> {
    for text in &tune.warnings {
        warning(out, terminal, Some(text.clone()))?;
    }
    writeln!(out, "{}", terminal.bold(&wrap(&head(tune, terminal), terminal.width(), INDENT)))?;
    writeln!(out, "\n{}", terminal.bold("attributes"))?;
    attributes(out, terminal, tune)?;
    writeln!(out, "\n{}", terminal.bold("working set"))?;
    working_set(out, terminal, &tune.working_set)?;
    for advice in &tune.advice {
        writeln!(out, "\n{}", terminal.bold(advice.topic.name()))?;
        write_advice(out, terminal, advice)?;
    }
    if !tune.withheld.is_empty() {
        writeln!(out, "\n{}", terminal.bold("no advice"))?;
        for withheld in &tune.withheld {
            paragraph(out, terminal, &format!("{}: {}.", withheld.topic.name(), withheld.reason))?;
        }
    }
    if tune.advice.iter().any(|advice| advice.scheme.is_some()) {
        let text = "Save a scheme to the file that the command names, or all with --save. `isotherm scheme check \
                    FILE` explains it, and `isotherm scheme try FILE REC` shows what it would have done to a \
                    recording.";
        writeln!(out)?;
        note(out, terminal, Some(text.into()))?;
    }
    Ok(())
}

fn head(tune: &Tune, terminal: &Terminal) -> String {
    let what = match &tune.targets[..] {
        [one] if one.pid == 0 && one.command == "page cache" => one.command.clone(),
        [one] if one.pid == 0 => "physical memory".to_owned(),
        [one] if one.command.is_empty() => format!("pid {}", shown_pid(one.pid, one.inner_pid)),
        [one] => {
            // The rest of the line takes about as much.
            let command = cut(&shown_command(&one.command), terminal.width() / 2, terminal);
            format!("{command} (pid {})", shown_pid(one.pid, one.inner_pid))
        }
        many => format!("{} targets", many.len()),
    };
    let time = units::nanoseconds(tune.to_ns.saturating_sub(tune.from_ns));
    format!("{what}: {time}, probe {}", sanitise(&tune.recording.probe))
}

fn attributes(out: &mut dyn Write, terminal: &Terminal, tune: &Tune) -> io::Result<()> {
    let found = &tune.attributes;
    command(out, terminal, &format!("isotherm record {} {}", found.options.join(" "), tune.target_options()))?;
    let regions = format!(
        "{} regions on the mean, {} at most",
        units::count(found.regions_mean.round() as u64),
        units::count(found.regions_max)
    );
    let text = match found.pace.line() {
        Some(pace) => format!("{pace}; {regions}"),
        None => regions,
    };
    paragraph(out, terminal, &text)
}

fn working_set(out: &mut dyn Write, terminal: &Terminal, found: &WorkingSet) -> io::Result<()> {
    paragraph(out, terminal, &resident(found))?;
    let largest =
        found.resident_max_bytes.unwrap_or(0).max(found.windows.iter().map(|w| w.peak_bytes).max().unwrap_or(0));
    let columns = terminal.width().saturating_sub(48).clamp(8, 40);
    let bytes = |bytes: Option<u64>| Cell::from(bytes.map_or_else(String::new, units::table_bytes));
    let is_estimated = found.windows.iter().any(Window::is_estimated);
    let rows: Vec<Vec<Cell>> = found
        .windows
        .iter()
        .map(|window| {
            let (text, styled) = bar(window, found, largest, columns, terminal);
            let length = units::duration(rounded(window.length()));
            let bounds = window.median_low_bytes.zip(window.median_high_bytes);
            let bounds = bounds.map(|(low, high)| Cell::from(units::bounds(low, high)));
            let mut cells = vec![format!("  {length}").into(), units::table_bytes(window.median_bytes).into()];
            cells.extend(is_estimated.then(|| bounds.unwrap_or_else(|| String::new().into())));
            cells.extend([
                units::table_bytes(window.peak_bytes).into(),
                bytes(window.idle.map(|idle| idle.bytes)),
                bytes(window.idle.and_then(|idle| idle.file_bytes)),
                Cell::painted(text, styled),
            ]);
            cells
        })
        .collect();
    let mut columns = vec![Column::text("  within", 0), Column::figure("median", 0)];
    columns.extend(is_estimated.then(|| Column::figure("bounds", 0)));
    columns.extend([
        Column::figure("peak", 1),
        Column::figure("idle", 2),
        Column::figure("of files", 4),
        Column::text("", 3),
    ]);
    table(out, terminal, &columns, &rows)?;
    let bar = match terminal.unicode {
        true => "█ median, ▓ peak, ░ idle, ? not known",
        false => "# median, + peak, . idle, ? not known",
    };
    let idle = match found.source {
        Basis::Survey => {
            "idle: not accessed for as long, at the end; of files: the part in mappings of files, which \
                          needs no swap to be reclaimed; "
        }
        Basis::Samples => "estimated from samples; ",
    };
    if is_estimated {
        let text = "estimated from a random part of the pages where surveys do not know the window; the bounds hold \
                    in 19 of 20 cases, and idle is at least so much";
        paragraph(out, terminal, text)?;
    }
    let once = if found.counted_once { "" } else { "; what several targets share counts for each" };
    if let Some(bytes) = found.idle_throughout_bytes.filter(|&bytes| bytes > 0) {
        let covered = units::nanoseconds(found.covered_ns.unwrap_or(0));
        paragraph(
            out,
            terminal,
            &format!("idle for all of the {covered} under survey: at least {}", units::bytes(bytes)),
        )?;
    }
    let text = wrap(&format!("{idle}bar: {bar}, of the resident memory{once}"), terminal.width() - INDENT, 0);
    for line in text.lines() {
        writeln!(out, "{:INDENT$}{}", "", terminal.dim(line))?;
    }
    Ok(())
}

/// The resident memory, and what is not known of it.
fn resident(found: &WorkingSet) -> String {
    let Some(bytes) = found.resident_bytes else { return "the resident memory is not known".into() };
    let mut text = format!("resident (RSS): {} at the end", units::bytes(bytes));
    if let Some(most) = found.resident_max_bytes.filter(|&most| units::bytes(most) != units::bytes(bytes)) {
        text += &format!(", {} at most", units::bytes(most));
    }
    if let (Some(anonymous), Some(file)) = (found.anonymous_bytes, found.file_bytes) {
        text += &format!("; {} anonymous or shared, {} in files", units::bytes(anonymous), units::bytes(file));
    }
    let share = |part: u64| units::percent(part as f64 / bytes.max(1) as f64);
    for (part, what) in [(found.unobservable_bytes, "unobservable"), (found.unknown_bytes, "unknown")] {
        if let Some(part) = part.filter(|&part| part > 0) {
            text += &format!("; {} {what} ({})", units::bytes(part), share(part));
        }
    }
    if let Some(freed) = found.lazily_freed_bytes {
        text += &format!("; besides {} freed lazily, which need no swap", units::bytes(freed));
    }
    if found.unobservable_bytes == Some(0) && found.unknown_bytes == Some(0) {
        text += "; nothing unobservable or unknown";
    }
    text
}

/// A bar of the resident memory: the median, the peak, what is not known, and what is idle.
fn bar(window: &Window, found: &WorkingSet, largest: u64, columns: usize, terminal: &Terminal) -> (String, String) {
    let peak = window.peak_bytes.saturating_sub(window.median_bytes);
    // The peak and the end are different times.
    let rest = found.resident_bytes.unwrap_or(0).saturating_sub(window.peak_bytes);
    let idle = window.idle.map_or(0, |idle| idle.bytes).min(rest);
    let rest = rest.saturating_sub(idle);
    let unseen = found.unobservable_bytes.unwrap_or(0).min(rest);
    let unknown = found.unknown_bytes.unwrap_or(0).min(rest - unseen);
    let parts: [Part; 5] = [
        (window.median_bytes, of_rate(0.9), "█", "#"),
        (peak, of_rate(0.5), "▓", "+"),
        (unseen, UNOBSERVABLE, "?", "?"),
        (unknown, UNKNOWN, "u", "u"),
        (idle, of_rate(0.15), "░", "."),
    ];
    stacked(&parts, largest, columns, terminal)
}

fn write_advice(out: &mut dyn Write, terminal: &Terminal, advice: &Advice) -> io::Result<()> {
    paragraph(out, terminal, &advice.text)?;
    for text in &advice.unknown {
        let text = sanitise(text);
        writeln!(out, "{:INDENT$}- {}", "", indented(&text, terminal, INDENT + 2))?;
    }
    for line in advice.scheme.iter().flat_map(|scheme| scheme.lines()) {
        let indent = 2 * INDENT;
        writeln!(out, "{:indent$}{}", "", wrap_scheme(line, terminal.width().saturating_sub(indent)))?;
    }
    match &advice.command {
        Some(text) => command(out, terminal, text),
        None => Ok(()),
    }
}

/// A line of a scheme. Only a very narrow terminal breaks it.
fn wrap_scheme(line: &str, columns: usize) -> String {
    if width(line) <= columns { line.to_owned() } else { wrap(line, columns.max(1), 0) }
}

/// A command as a shell reads it: in several lines that end with a backslash if it is longer than the terminal is wide.
fn command(out: &mut dyn Write, terminal: &Terminal, text: &str) -> io::Result<()> {
    const END: &str = " \\";
    let text = sanitise(text);
    let columns = terminal.width().saturating_sub(2 * INDENT + END.len()).max(1);
    let mut lines: Vec<String> = vec![];
    for word in with_values(&shell_words(&text)) {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(&word) <= columns => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    let last = lines.len().saturating_sub(1);
    for (nth, line) in lines.iter().enumerate() {
        let indent = if nth == 0 { INDENT } else { 2 * INDENT };
        let line = if terminal.width() < NARROW { wrap(line, columns, 0) } else { line.clone() };
        let end = if nth == last { "" } else { END };
        writeln!(out, "{:indent$}{}", "", terminal.bold(&format!("{line}{end}")))?;
    }
    Ok(())
}

/// In a narrower terminal, words of a command are broken, and it cannot be copied.
const NARROW: usize = 60;

/// The words, with an option and its value as one.
fn with_values(words: &[&str]) -> Vec<String> {
    let mut joined: Vec<String> = vec![];
    for word in words {
        match joined.last_mut() {
            Some(option) if option.starts_with("--") && !option.contains(' ') && !word.starts_with('-') => {
                option.push(' ');
                option.push_str(word);
            }
            _ => joined.push((*word).to_owned()),
        }
    }
    joined
}

/// The words of a command. A quoted word stays whole.
fn shell_words(text: &str) -> Vec<&str> {
    let mut quoted = false;
    let spaces = text.split(|c: char| {
        quoted ^= c == '\'';
        c == ' ' && !quoted
    });
    spaces.filter(|word| !word.is_empty()).collect()
}

fn paragraph(out: &mut dyn Write, terminal: &Terminal, text: &str) -> io::Result<()> {
    writeln!(out, "{:INDENT$}{}", "", indented(&sanitise(text), terminal, INDENT))
}

/// A text whose first line begins at `indent`, as its other lines do.
fn indented(text: &str, terminal: &Terminal, indent: usize) -> String {
    let lines = wrap(text, terminal.width().saturating_sub(indent).max(1), 0);
    lines.replace('\n', &format!("\n{:indent$}", ""))
}

/// A time with tenths of a second.
fn rounded(time: Duration) -> Duration {
    Duration::from_millis((time.as_millis() as u64 + 50) / 100 * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_broken_between_its_words() {
        let text = "isotherm run --schemes reclaim.yaml --children -- sh -c 'sleep 1; it is done' --and more";
        let terminal = Terminal { columns: 60, ..Terminal::default() };
        let mut out = vec![];
        command(&mut out, &terminal, text).unwrap();
        let out = String::from_utf8(out).unwrap();
        let expected =
            "  isotherm run --schemes reclaim.yaml --children -- sh \\\n    -c 'sleep 1; it is done' --and more\n";
        assert_eq!(out, expected);
        assert_eq!(out.replace("\\\n", "").split_whitespace().collect::<Vec<_>>().join(" "), text);
    }
}
