//! `isotherm man`: manual pages, made from the definition of the command line.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_mangen::roff::{Roff, bold, roman};
use isotherm_output::Output;

use crate::cli::Man;

pub fn run(options: &Man, cli: clap::Command) -> Result<ExitCode> {
    let directory = &options.directory;
    fs::create_dir_all(directory).with_context(|| format!("{} cannot be created", directory.display()))?;
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    write(&cli, None, directory)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command, which may have a parent, and those of its subcommands.
fn write(command: &clap::Command, parent: Option<&str>, directory: &Path) -> Result<()> {
    let name = display_name(command);
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write(subcommand, Some(name), directory)?;
    }
    let path = directory.join(format!("{name}.1"));
    let page = page(command, parent).with_context(|| format!("the page of {name} cannot be created"))?;
    // The pages are part of a package, and hold nothing of this machine.
    Ok(Output::new(&path).readable_by_all().create()?.write_whole(|writer| writer.write_all(&page))?)
}

/// The name of a command after that of its parent, such as `isotherm-record`.
fn display_name(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// The page of a command, in the language of man(7).
fn page(command: &clap::Command, parent: Option<&str>) -> std::io::Result<Vec<u8>> {
    let man = clap_mangen::Man::new(command.clone());
    let name = display_name(command).replace('-', "\\-");
    // `render_title` would drop the empty date, so that the version would be taken for the date.
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(".TH {name} 1 \"\" \"isotherm {version}\" \"isotherm manual\"\n").into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_long_help() {
        sections(&text.to_string()).to_writer(&mut page)?;
    }
    if let Some(parent) = parent {
        Roff::new().control("SH", ["SEE ALSO"]).text([bold(parent), roman("(1)")]).to_writer(&mut page)?;
    }
    Ok(page)
}

/// The text that follows the options of `--help`, as sections of a page. Each paragraph that begins with `Heading:`
/// begins a section. Indented lines keep their layout.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    for paragraph in text.split("\n\n") {
        let heading = paragraph.split_once(':').filter(|(heading, _)| heading.split(' ').count() <= 2);
        let body = heading.map_or(paragraph, |(_, rest)| rest).trim_start_matches([' ', '\n']);
        match heading {
            Some((heading, _)) => roff.control("SH", [heading.to_uppercase().as_str()]),
            None => roff.control("PP", []),
        };
        if paragraph.lines().skip(1).any(|line| line.starts_with(' ')) {
            roff.control("nf", []);
            for line in body.lines() {
                roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
            roff.control("fi", []);
        } else {
            roff.text([roman(capitalised(body))]);
        }
    }
    roff
}

/// The text with a capital letter at its beginning.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_with_a_heading_are_sections_and_examples_keep_their_layout() {
        let text = "Examples:\n  isotherm top     live\n  isotherm idle\n\nExit status: 0 if\nall went well.\n\n\
                    See too: here is why.";
        let roff = sections(text).render();
        let wanted = ".SH EXAMPLES\n.nf\nisotherm top     live\nisotherm idle\n.fi\n\
                      .SH \"EXIT STATUS\"\n0 if\nall went well.\n\
                      .SH \"SEE TOO\"\nHere is why.\n";
        assert_eq!(roff.split_once(wanted).map(|(_, rest)| rest), Some(""), "{roff}");
    }
}
